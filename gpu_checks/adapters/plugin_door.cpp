// Plug-ins as this process sees them: one worker process for a library, reused, started again after it died.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <mutex>

#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/adapters/doors.hpp"
#include "gpu_checks/adapters/sha256.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Json = nlohmann::json;

Deadline in_seconds(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                std::chrono::duration<double>(seconds));
}

// A file of memory with these bytes; sealed, nobody can change them any more.
class MemoryFile {
 public:
  MemoryFile(const std::vector<std::byte>& bytes, bool sealed)
      : descriptor_(memfd_create("attest", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t written = write(descriptor_.get(), bytes.data() + at, bytes.size() - at);
      if (written <= 0) throw BadInput("not enough memory for the tensors of a kernel");
      at += static_cast<std::size_t>(written);
    }
    fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | (sealed ? F_SEAL_WRITE : 0));
  }
  int get() const { return descriptor_.get(); }
  std::vector<std::byte> read(std::size_t count) const {
    std::vector<std::byte> bytes(count);
    for (std::size_t at = 0; at < count;) {
      const ssize_t got = pread(descriptor_.get(), bytes.data() + at, count - at, static_cast<off_t>(at));
      if (got <= 0) throw BadInput("the outputs of a kernel could not be read");
      at += static_cast<std::size_t>(got);
    }
    return bytes;
  }

 private:
  Descriptor descriptor_;
};

class Plugin {
 public:
  Plugin(std::filesystem::path path, const DoorOptions& options)
      : path_(std::move(path)), options_(options) {}

  // The announcement, of a new worker. BadInput where there is none.
  Json start() {
    const double patience = std::max(options_.seconds, 60.0);
    worker_.emplace(std::vector<std::string>{worker_program().string(), "worker", "plugin",
                                             std::filesystem::absolute(path_).string()},
                    "");
    const auto refuse = [&](const std::string& why) {
      const std::string printed = worker_->printed();
      worker_.reset();
      throw BadInput(place() + ": " + why + printed);
    };
    const Deadline deadline = in_seconds(patience);
    Json announced{{"kernels", Json::array()}};
    while (true) {
      Answer answer = worker_->receive_packet(deadline);
      std::string crash;
      if (answer.kind == Answer::given && answer.text.starts_with('!')) {
        crash = ": it " + answer.text.substr(1);
        answer = worker_->receive_packet(deadline);
      }
      if (answer.kind == Answer::late) refuse(fmt::format("was not loaded within {} s", patience));
      if (answer.kind == Answer::ended) refuse("its process " + answer.text + " while it was loaded" + crash);
      const Json part = parse_message(answer.text);
      if (part.is_object() && part.contains("refused")) refuse(part["refused"].get<std::string>());
      if (!part.is_object() || !part.contains("kernels"))
        refuse("its process wrote to a socket that is not its own");
      for (const Json& kernel : part["kernels"]) announced["kernels"].push_back(kernel);
      if (part.value("last", true)) return announced;
    }
  }

  std::string place() const { return "--plugin " + in_quotes(path_.string()); }
  void announced(Json json) { announcement_ = std::move(json); }

  KernelResult run(const Kernel& kernel, std::size_t index, const Problem& problem) {
    if (std::string why = not_offered(kernel, problem); !why.empty())
      return {KernelStatus::unsupported, why, {}, 0};
    const std::lock_guard lock(guard_);
    const auto failed = [](std::string why) {
      return KernelResult{KernelStatus::failed, "the kernel " + std::move(why), {}, 0};
    };
    const Layout layout =
        options_.strided && has_feature(kernel, "strides") ? Layout::padded : Layout::contiguous;
    std::vector<double> ends;
    const Region inputs(inputs_of(kernel, problem, ends), layout, false),
        outputs(outputs_of(kernel, problem), layout, true);
    const MemoryFile in(inputs.image(), true), out(outputs.image(), false);
    if (!worker_) try {
        if (start() != announcement_) return failed("announces something else when it is loaded again");
      } catch (const BadInput& error) {
        return failed("cannot be loaded again: " + std::string(error.what()));
      }
    const Json request{{"kernel", index},
                       {"inputs", inputs.description()},
                       {"outputs", outputs.description()},
                       {"options", options_of(problem)}};
    const bool sent = worker_->send_packet(request.dump(), std::array{in.get(), out.get()});
    const Deadline deadline = in_seconds(options_.seconds);
    Answer answer = worker_->receive_packet(deadline);
    std::string crash;
    if (answer.kind == Answer::given && answer.text.starts_with('!')) {
      crash = ": it " + answer.text.substr(1);
      answer = worker_->receive_packet(deadline);
    }
    const Json reply = answer.kind == Answer::given ? parse_message(answer.text) : Json();
    if (!sent || !reply.is_object()) {
      const std::string printed = worker_->printed();
      worker_.reset();
      if (answer.kind == Answer::late)
        return failed(fmt::format("did not return within {} s", options_.seconds) + printed);
      if (answer.kind == Answer::ended) return failed(answer.text + crash + printed);
      return failed("wrote to a socket that is not its own" + printed);
    }
    if (reply.value("broken", false)) worker_.reset();
    return judge_reply(reply, outputs, out);
  }

 private:
  static KernelResult judge_reply(const Json& reply, const Region& outputs, const MemoryFile& out) {
    KernelResult result;
    result.nanoseconds = reply.value("nanoseconds", std::int64_t{0});
    const std::string said = reply.value("message", ""), fault = reply.value("fault", "");
    const std::string quoted = said.empty() ? "" : ": " + printable(said, 300);
    const int status = reply.value("status", -1);
    const auto failed = [&](const std::string& why) {
      result.status = KernelStatus::failed, result.message = "the kernel " + why;
      return result;
    };
    if (!fault.empty()) return failed(fault);
    const std::vector<std::byte> bytes = out.read(outputs.image().size());
    if (status == 1) {
      result.status = KernelStatus::unsupported,
      result.message = "the kernel says that it does not support this" + quoted;
      return result;
    }
    if (status == 2) return failed("calls its inputs invalid" + quoted);
    if (status == 3) return failed("says that it failed" + quoted);
    if (status != 0) return failed(fmt::format("returned {}, which is no attest_status", status) + quoted);
    if (const std::string wrong = outputs.fault(bytes); !wrong.empty()) return failed(wrong);
    result.outputs = outputs.values(bytes);
    return result;
  }

  const std::filesystem::path path_;
  const DoorOptions options_;
  Json announcement_;
  std::optional<Child> worker_;
  std::mutex guard_;
};

}  // namespace

std::vector<Kernel> open_plugin(const std::string& path_and_glob, const DoorOptions& options) {
  std::string path = path_and_glob, glob;
  if (const auto colon = path.rfind(':');
      colon != std::string::npos && path.find('/', colon) == std::string::npos)
    glob = path.substr(colon + 1), path.resize(colon);
  const auto plugin = std::make_shared<Plugin>(path, options);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw BadInput(plugin->place() + ": no such file, expected a shared library");
  Json announced = plugin->start();
  std::vector<Kernel> kernels;
  const std::string digest = sha256_of_file(path);
  for (auto& [kernel, index, on_cuda] : read_announcement(announced, plugin->place(), glob)) {
    kernel.door = "plugin", kernel.sha256 = digest;
    kernel.source = "--plugin " + shell_word(path);
    kernel.run = [plugin, of = kernel, at = index](const Problem& problem) {
      return plugin->run(of, at, problem);
    };
    kernels.push_back(std::move(kernel));
  }
  plugin->announced(std::move(announced));
  return kernels;
}

}  // namespace attest
