// Processes as kernels (PROTOCOL.md): one child for a command, which stays up; started again after it died, was late
// or lost count of its calls.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/adapters/devices.hpp"
#include "gpu_checks/adapters/doors.hpp"
#include "gpu_checks/adapters/reply.hpp"
#include "reference/tensor/bad_input.hpp"
#include "reference/tensor/safetensors.hpp"

namespace attest {
namespace {

using Json = nlohmann::json;

Deadline in_seconds(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                std::chrono::duration<double>(seconds));
}

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "attest-XXXXXX").string();
  if (!mkdtemp(name.data()))
    throw BadInput("no folder can be made in " + in_quotes(std::filesystem::temp_directory_path().string()));
  return name;
}

Dtype dtype_of(const Passed& tensor) {
  if (tensor.integer) return Dtype::i64;
  if (tensor.format == fp64) return Dtype::f64;
  if (tensor.format == fp16) return Dtype::f16;
  if (tensor.format == bf16) return Dtype::bf16;
  return Dtype::f32;
}

void write_tensors(const std::vector<Passed>& tensors, const std::filesystem::path& path) {
  SafetensorsWriter writer;
  for (const Passed& tensor : tensors) {
    std::vector<std::byte> bytes(tensor.values->size() * tensor.element_bytes());
    for (std::size_t i = 0; i < tensor.values->size(); ++i)
      write_element(tensor, (*tensor.values)[i], &bytes[i * tensor.element_bytes()]);
    writer.add(tensor.name, dtype_of(tensor), tensor.shape, bytes);
  }
  writer.write(path);
}

// For sh -c: a command without the grammar of a shell takes the shell's place, so that its signals are its own.
std::string for_shell(const std::string& command) {
  const auto first = command.find_first_not_of(' ');
  const bool simple = command.find_first_of(";&|<>(){}$`\n#") == std::string::npos &&
                      first != std::string::npos &&
                      command.substr(first, command.find(' ', first) - first).find('=') == std::string::npos;
  return simple ? "exec " + command : command;
}

class Process {
 public:
  Process(std::string command, const DoorOptions& options, std::string device)
      : command_(std::move(command)), options_(options), device_(std::move(device)) {}

  std::string place() const { return "--process " + in_quotes(command_); }
  void announced(Json json) { announcement_ = std::move(json); }

  // A new child and its announcement. BadInput where there is none.
  Json start() {
    const double patience = std::max(options_.seconds, 60.0);
    const Deadline deadline = in_seconds(patience);
    folder_ = make_folder();
    child_.emplace(on_device({"/bin/sh", "-c", for_shell(command_)}, device_), folder_);
    try {
      child_->write_line(Json{{"attest", 1}, {"hello", true}}.dump(), deadline);
      return read_hello(receive(deadline, patience, "announced nothing"));
    } catch (const Misbehaved& fault) {
      const std::string printed = child_->printed();
      child_.reset();
      throw BadInput(place() + ": it " + fault.what + printed);
    }
  }

  KernelResult run(const Kernel& kernel, const Problem& problem) {
    if (std::string why = not_offered(kernel, problem); !why.empty())
      return {KernelStatus::unsupported, why, {}, 0};
    const std::lock_guard lock(guard_);
    const auto failed = [](const std::string& why) {
      return KernelResult{KernelStatus::failed, "the process " + why, {}, 0};
    };
    try {
      if (!child_) try {
          if (start() != announcement_) return failed("announces something else when it is started again");
        } catch (const BadInput& error) {
          return failed("cannot be started again: " + std::string(error.what()));
        }
      return call(kernel, problem);
    } catch (const AnswerGivenUp&) {
      child_.reset();  // the next call shall not take its answer for its own
      throw;
    } catch (const Misbehaved& fault) {
      const std::string printed = child_->printed();
      child_.reset();  // who knows what it would answer next
      return failed(fault.what + printed);
    }
  }

 private:
  std::string receive(Deadline deadline, double seconds, const char* nothing) {
    WorkerAnswer answer = child_->receive_reply(deadline);
    if (answer.kind == WorkerAnswer::late) throw Misbehaved{fmt::format("{} within {} s", nothing, seconds)};
    if (answer.kind == WorkerAnswer::ended) throw Misbehaved{answer.text};
    return std::move(answer.text);
  }

  KernelResult call(const Kernel& kernel, const Problem& problem) {
    ++calls_;
    const std::filesystem::path in = folder_ / "inputs.safetensors", out = folder_ / "outputs.safetensors";
    std::vector<double> ends;
    write_tensors(inputs_of(kernel, problem, ends), in);
    std::error_code ignored;
    std::filesystem::remove(out, ignored);
    const std::vector<Passed> outputs = outputs_of(kernel, problem);
    Json wanted = Json::object();
    for (const Passed& tensor : outputs)
      wanted[tensor.name] = {{"dtype", dtype_name(dtype_of(tensor))}, {"shape", tensor.shape}};
    const Json request{{"call", calls_},          {"kernel", kernel.name}, {"inputs", in.string()},
                       {"outputs", out.string()}, {"wanted", wanted},      {"options", options_of(problem)}};
    const Deadline deadline = in_seconds(options_.seconds);
    const bool read = child_->write_line(request.dump(), deadline);
    KernelResult result = read_call_reply(
        receive(deadline, options_.seconds, read ? "did not answer" : "did not read its call"), calls_);
    if (child_->has_reply()) throw Misbehaved{"answered the call twice"};
    if (result.status != KernelStatus::ok) return result;
    read_outputs(outputs, out, result);
    return result;
  }

  static void read_outputs(const std::vector<Passed>& outputs, const std::filesystem::path& path,
                           KernelResult& result) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored))
      throw Misbehaved{"answered ok and wrote no file of outputs"};
    if (std::filesystem::hard_link_count(path, ignored) != 1 || std::filesystem::is_symlink(path, ignored))
      throw Misbehaved{"gave a file of outputs that is another file too (a link), expected one of its own"};
    try {
      const SafetensorsFile file(path);
      for (const Passed& tensor : outputs) {
        const TensorInfo& info = file.info(tensor.name);
        std::string wrong;  // both: the one must not hide the other
        if (info.dtype != dtype_of(tensor))
          wrong = fmt::format("dtype {}, expected {}", dtype_name(info.dtype), dtype_name(dtype_of(tensor)));
        if (info.shape != tensor.shape)
          wrong += fmt::format("{}shape {}, expected {}", wrong.empty() ? "" : "; ", shape_text(info.shape),
                               shape_text(tensor.shape));
        if (!wrong.empty()) throw file.error(tensor.name, wrong);
        result.outputs[tensor.name] = {tensor.shape, file.as_double(tensor.name)};
      }
    } catch (const BadInput& error) {
      throw Misbehaved{"wrote outputs that cannot be used: " + without_folder(error.what(), path)};
    }
  }

  // The temporary folder means nothing to a reader, and differs from run to run.
  static std::string without_folder(std::string text, const std::filesystem::path& path) {
    const std::string folder = path.parent_path().string() + "/";
    for (std::size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  const std::string command_;
  const DoorOptions options_;
  const std::string device_;
  Json announcement_;
  std::filesystem::path folder_;
  std::optional<Child> child_;
  std::int64_t calls_ = 0;
  std::mutex guard_;
};

}  // namespace

std::vector<Kernel> open_process(const std::string& command, const DoorOptions& options) {
  // Shared by the kernels. The first is started here, the others when a thread first calls them.
  const auto processes = std::make_shared<DoorOfEachWorker<Process>>(
      devices_of_workers(options.devices, options.workers),
      [&](const std::string& device) { return std::make_shared<Process>(command, options, device); });
  const std::string place = processes->first().place();
  const Json announced = processes->first().start();
  const std::string sha256 = announced_sha256(announced, place);
  std::vector<Kernel> kernels;
  for (auto& [kernel, index, on_cuda] : read_announcement(announced, place, "")) {
    kernel.door = "process", kernel.sha256 = sha256;
    kernel.source = "--process " + quoted_word(command);
    kernel.run = [processes, of = kernel](const Problem& problem) {
      return processes->of_this_thread().run(of, problem);
    };
    kernels.push_back(std::move(kernel));
  }
  for (const auto& process : processes->all()) process->announced(announced);
  return kernels;
}

}  // namespace attest
