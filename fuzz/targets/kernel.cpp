// Bytes as a small case of a registered CPU kernel: the kernel, its shape and options, then the values bit by bit. The
// verdict is that of `attest check`; a registered kernel is right, so FAIL is a fault of the kernel, the bound or the
// oracle. With ATTEST_FUZZ_MUTANTS set, deliberately wrong kernels stand in for the registered ones.
#include <bit>
#include <cmath>
#include <cstring>

#include "fuzz/targets/target.hpp"
#include "gpu_checks/check.hpp"
#include "gpu_checks/mutants/kill_matrix.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

class Bytes {
 public:
  Bytes(const std::uint8_t* bytes, std::size_t size) : at_(bytes), end_(bytes + size) {}
  bool left() const { return at_ < end_; }
  // 0 .. below - 1; after the last byte 0.
  std::uint32_t take(std::uint32_t below) { return byte() % below; }
  std::uint32_t take_wide(std::uint32_t below) {
    const std::uint32_t low = byte();
    return (low | byte() << 8) % below;
  }
  // A bf16, bit by bit; or a number of four binary places below 8; or a power of two.
  double value(std::uint32_t kind) {
    if (kind == 0) return std::bit_cast<float>(take_wide(0x10000) << 16);
    const int one = static_cast<int>(byte()) - 128;
    return kind == 1 ? one / 16.0 : std::copysign(std::ldexp(1.0, one % 16), one);
  }

 private:
  std::uint32_t byte() { return left() ? *at_++ : 0; }
  const std::uint8_t *at_, *end_;
};

const std::vector<const Kernel*>& kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> found;
    if (std::getenv("ATTEST_FUZZ_MUTANTS"))
      for (const Mutant* mutant : find_mutants("")) found.push_back(&mutant->kernel);
    else
      found = find_kernels("", "");
    return found;
  }();
  return list;
}

Case take_case(Bytes& bytes, const Kernel& kernel, const Declaration& declaration) {
  Case c;
  c.op = kernel.op, c.variant = kernel.variant;
  c.tokens = 1 + bytes.take(20);
  c.key_dim = 1 + bytes.take(4), c.value_dim = 1 + bytes.take(3);
  c.heads = 1 + bytes.take(2), c.batch = 1 + bytes.take(2);
  c.recipe = recipes()[bytes.take(static_cast<std::uint32_t>(recipes().size()))].name;
  c.gates = gate_recipes()[bytes.take(static_cast<std::uint32_t>(gate_recipes().size()))].name;
  c.seed = bytes.take(256);
  const std::uint32_t options = bytes.take(256);
  std::vector<std::string> entries;
  const auto offer = [&](std::uint32_t bit, const char* entry) {
    const std::string key(entry, std::strchr(entry, '='));
    std::vector<std::string> one{entry};
    if ((options & bit) != 0 && accepted([&] { parse_options(declaration, one); })) entries.push_back(entry);
  };
  offer(1, "normalize=true"), offer(2, "scale=3/4"), offer(4, "decay=7/8"), offer(8, "ridge=1/8");
  offer(16, "epsilon=1/16"), offer(32, "scale=-1e20"), offer(64, "decay=0");
  if ((options & 2) != 0) std::erase(entries, "scale=-1e20");
  if ((options & 4) != 0) std::erase(entries, "decay=0");
  c.options = parse_options(declaration, entries);
  return c;
}

// What is left of the bytes, in place of the first values that were drawn; each within its domain.
void take_values(Bytes& bytes, Problem& problem) {
  const std::uint32_t kind = bytes.take(3);
  for (auto& [name, tensor] : problem.fields)
    for (double& x : tensor.data) {
      if (!bytes.left()) return;
      const double value = bytes.value(kind);
      if (name == "q" || name == "k" || name == "v")
        x = value;
      else if (name == "g")
        x = std::isnan(value) ? -1 : -std::abs(value);
      else if (name == "level_scales")
        x = std::isfinite(value) ? value : 1;
      else
        x = std::isfinite(value) ? std::fmod(std::abs(value), 1) : 1;
    }
}

void judge_bytes(Bytes bytes) {
  const Kernel& kernel = *kernels()[bytes.take_wide(static_cast<std::uint32_t>(kernels().size()))];
  const Declaration& declaration = operator_named(kernel.op, kernel.variant).declaration();
  Case c = take_case(bytes, kernel, declaration);
  Problem drawn = draw_problem(c, declaration);
  take_values(bytes, drawn);
  const std::string drawn_line = to_text(c);
  c.input = "bytes";  // not drawn: no part of the bound may lean on independent entries
  const Problem problem = make_problem(drawn.fields, declaration, c.options, "bytes");
  const Checked checked = check_one(kernel, c, problem);
  require(checked.kernel_ns >= 0 && checked.oracle_ns >= 0, "a negative time");
  if (checked.verdict == Verdict::fail)
    report_fault(kernel.name + " on " + drawn_line + " and values from the bytes: " + checked.reason);
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  attest::accepted([&] { attest::judge_bytes({bytes, size}); });
  return 0;
}
