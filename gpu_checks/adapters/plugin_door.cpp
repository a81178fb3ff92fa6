// Plug-ins as this process sees them: one worker process for a library, reused, started again after it died.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <mutex>

#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/adapters/devices.hpp"
#include "gpu_checks/adapters/doors.hpp"
#include "gpu_checks/adapters/reply.hpp"
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
  Plugin(std::filesystem::path path, const DoorOptions& options, std::string device)
      : path_(std::move(path)), options_(options), device_(std::move(device)) {}

  // The announcement, of a new worker. BadInput where there is none.
  Json start() {
    const double patience = std::max(options_.seconds, 60.0);
    worker_.emplace(
        on_device({worker_program().string(), "worker", "plugin", std::filesystem::absolute(path_).string()},
                  device_),
        "");
    const auto refuse = [&](const std::string& why) {
      const std::string printed = worker_->printed();
      worker_.reset();
      throw BadInput(place() + ": " + why + printed);
    };
    const Deadline deadline = in_seconds(patience);
    Json announced{{"kernels", Json::array()}};
    while (true) {
      WorkerAnswer answer = worker_->receive_packet(deadline);
      std::string crash;
      if (answer.kind == WorkerAnswer::given && answer.text.starts_with('!')) {
        crash = ": it " + printable(answer.text.substr(1), 120);
        answer = worker_->receive_packet(deadline);
      }
      if (answer.kind == WorkerAnswer::late) refuse(fmt::format("was not loaded within {} s", patience));
      if (answer.kind == WorkerAnswer::ended)
        refuse("its process " + answer.text + " while it was loaded" + crash);
      try {
        const PluginPart part = read_plugin_part(answer.text);
        if (!part.refused.empty()) refuse(part.refused);
        for (const Json& kernel : part.kernels) announced["kernels"].push_back(kernel);
        if (part.last) return announced;
      } catch (const Misbehaved& fault) {
        refuse("its process " + fault.what);
      }
    }
  }

  std::string place() const { return "--plugin " + in_quotes(path_.string()); }
  void announced(Json json) { announcement_ = std::move(json); }

  KernelResult run(const Kernel& kernel, std::size_t index, bool strided, const Problem& problem) {
    if (std::string why = not_offered(kernel, problem); !why.empty())
      return {KernelStatus::unsupported, why, {}, 0};
    const std::lock_guard lock(guard_);
    try {
      return call(kernel, index, strided, problem);
    } catch (const AnswerGivenUp&) {
      worker_.reset();  // the next call shall not take its answer for its own
      throw;
    }
  }

 private:
  KernelResult call(const Kernel& kernel, std::size_t index, bool strided, const Problem& problem) {
    const auto failed = [](std::string why) {
      return KernelResult{KernelStatus::failed, "the kernel " + std::move(why), {}, 0};
    };
    const Layout layout = strided ? Layout::padded : Layout::contiguous;
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
    WorkerAnswer answer = worker_->receive_packet(deadline);
    std::string crash;
    while (answer.kind == WorkerAnswer::given && answer.text.starts_with('!') &&
           std::chrono::steady_clock::now() < deadline) {  // one from each thread that crashed
      crash = ": it " + printable(answer.text.substr(1), 120);
      answer = worker_->receive_packet(deadline);
    }
    const auto ended = [&](const std::string& how) {
      const std::string printed = worker_->printed();
      worker_.reset();
      return failed(how + printed);
    };
    if (answer.kind == WorkerAnswer::late)
      return ended(fmt::format("did not return within {} s", options_.seconds));
    if (answer.kind == WorkerAnswer::ended) return ended(answer.text + crash);
    if (!sent || !crash.empty()) return ended("wrote to a socket that is not its own" + crash);
    try {
      PluginReply reply = read_plugin_reply(answer.text);
      if (reply.broken) worker_.reset();
      if (reply.result.status != KernelStatus::ok) return std::move(reply.result);
      return with_outputs(std::move(reply.result), outputs, out);
    } catch (const Misbehaved& fault) {
      return ended(fault.what);
    }
  }

  static KernelResult with_outputs(KernelResult result, const Region& outputs, const MemoryFile& out) {
    const std::vector<std::byte> bytes = out.read(outputs.image().size());
    if (const std::string wrong = outputs.fault(bytes); !wrong.empty())
      return {KernelStatus::failed, "the kernel " + wrong, {}, result.nanoseconds};
    result.outputs = outputs.values(bytes);
    return result;
  }

  const std::filesystem::path path_;
  const DoorOptions options_;
  const std::string device_;
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
  // Shared by the kernels. The first worker is started here, the others when a thread first calls them.
  const auto plugins = std::make_shared<DoorOfEachWorker<Plugin>>(
      devices_of_workers(options.devices, options.workers),
      [&](const std::string& device) { return std::make_shared<Plugin>(path, options, device); });
  const std::string place = plugins->first().place();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw BadInput(place + ": no such file, expected a shared library");
  const Json announced = plugins->first().start();
  std::vector<Kernel> kernels;
  const std::string digest = sha256_of_file(path);
  for (auto& [kernel, index, on_cuda] : read_announcement(announced, place, glob)) {
    kernel.door = "plugin", kernel.sha256 = digest;
    kernel.source = "--plugin " + quoted_word(path);
    const auto run = [plugins, of = kernel, at = index](bool strided, const Problem& problem) {
      return plugins->of_this_thread().run(of, at, strided, problem);
    };
    const bool strides = has_feature(kernel, "strides");
    kernel.run = std::bind_front(run, options.strided && strides);
    if (strides) kernel.run_strided = std::bind_front(run, true);
    kernels.push_back(std::move(kernel));
  }
  for (const auto& plugin : plugins->all()) plugin->announced(announced);
  return kernels;
}

}  // namespace attest
