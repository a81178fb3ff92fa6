// Bytes as what the process of a kernel prints, in pieces: lines are put together, and every reply to call 7 gives a
// result that can be recorded, or a sentence about what the process did. The same bytes as packets of a plug-in.
#include "gpu_checks/adapters/reply.hpp"

#include "fuzz/targets/target.hpp"
#include "gpu_checks/adapters/child.hpp"

namespace attest {
namespace {

void examine(const KernelResult& result) {
  require(result.nanoseconds >= 0, "a time that no record takes");
  require(result.outputs.empty(), "outputs out of nothing");
  if (result.status != KernelStatus::ok) require_one_line(result.message);
}

template <class Read>
void answered(Read&& read) {
  try {
    read();
  } catch (const Misbehaved& fault) {
    require_one_line(fault.what);
  }
}

// Pieces of 1, 2, 3 ... bytes: a reply may be torn anywhere.
void print(std::string_view text, Transcript& transcript) {
  for (std::size_t piece = 1; !text.empty(); ++piece) {
    const std::size_t length = std::min(piece, text.size());
    transcript.feed(text.substr(0, length));
    text.remove_prefix(length);
  }
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace attest;
  const std::string_view text = text_of(bytes, size);
  Transcript transcript;
  print(text, transcript);
  require(transcript.last_lines().size() <= 6, "more lines are kept than are quoted");
  while (const auto reply = transcript.take_reply()) answered([&] { examine(read_call_reply(*reply, 7)); });
  answered([&] {
    const PluginPart part = read_plugin_part(text);
    require(part.kernels.is_array(), "kernels that are no array");
  });
  answered([&] { examine(read_plugin_reply(text).result); });
  return 0;
}
