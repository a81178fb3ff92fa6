#include "gpu_checks/adapters/in_process.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "gpu_checks/adapters/region.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr const char* optional_names =
    "g alpha beta level_scales decay scale normalize epsilon ridge";  // fields and options

std::set<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> words;
  for (std::string word; stream >> word;) words.insert(word);
  return words;
}

std::set<std::string> parse_takes(const std::string& text, const std::string& place) {
  const std::set<std::string> known = words_of(optional_names), words = words_of(text);
  for (const std::string& word : words)
    if (!known.contains(word))
      throw BadInput(place + ": takes " + in_quotes(word) + ": expected of " + optional_names);
  return words;
}

std::string not_taken(const std::set<std::string>& takes, const Problem& problem) {
  std::set<std::string> present;
  for (const auto& [name, tensor] : problem.fields)
    if (name != "q" && name != "k" && name != "v" && name != "cu_seqlens" &&
        !name.starts_with("initial_state.") && name != "do" && !name.starts_with("dfinal_state."))
      present.insert(name);
  const nlohmann::json options = options_of(problem);
  for (const auto& [key, value] : options.items()) present.insert(key);
  for (const std::string& name : present)
    if (!takes.contains(name)) return "the kernel does not take " + name;
  return {};
}

// A decay of 1 changes nothing: a kernel that takes none is not told.
Problem without_neutral_decay(Problem problem) {
  if (problem.options.decay && *problem.options.decay == 1) problem.options.decay.reset();
  return problem;
}

// The bytes of a region at an address that keeps its tensors aligned.
class Memory {
 public:
  explicit Memory(const std::vector<std::byte>& image)
      : bytes_(image.size()), data_(static_cast<std::byte*>(std::aligned_alloc(Region::zone, image.size()))) {
    if (!data_) throw BadInput("not enough memory for the tensors of a kernel");
    std::memcpy(data_, image.data(), bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(data_); }
  std::byte* data() const { return data_; }
  bool equals(const std::vector<std::byte>& image) const {
    return std::memcmp(data_, image.data(), bytes_) == 0;
  }
  std::vector<std::byte> bytes() const { return {data_, data_ + bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

struct CallMemory {
  CallMemory(const Region& in, const Region& out) : inputs(in.image()), outputs(out.image()) {}
  Memory inputs, outputs;
};

std::vector<TensorInMemory> placed(const Region& region, std::byte* base) {
  std::vector<TensorInMemory> list;
  for (const Placed& tensor : region.tensors())
    list.push_back({tensor.name, tensor.format, tensor.integer, tensor.shape, base + tensor.first()});
  return list;
}

KernelResult run_function(const Kernel& kernel, const std::function<void(const CallInMemory&)>& function,
                          const Problem& problem) {
  std::vector<double> ends;
  const Region inputs(inputs_of(kernel, problem, ends), Layout::contiguous, false),
      outputs(outputs_of(kernel, problem), Layout::contiguous, true);
  const auto memory = std::make_shared<const CallMemory>(inputs, outputs);
  const CallInMemory call{&problem, placed(inputs, memory->inputs.data()),
                          placed(outputs, memory->outputs.data()), memory};
  KernelResult result;
  const auto failed = [&](const std::string& why) {
    result.status = KernelStatus::failed, result.message = "the kernel " + why;
    return result;
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    function(call);
  } catch (const UnsupportedProblem& why) {
    return {KernelStatus::unsupported, printable(why.what(), 300), {}, 0};
  } catch (const FailedCall& why) {
    return {KernelStatus::failed, printable(why.what(), 300), {}, 0};
  } catch (const std::exception& error) {
    return failed("threw an exception: " + printable(error.what(), 300));
  }
  result.nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  if (!memory->inputs.equals(inputs.image())) return failed("wrote to an input or beside it");
  const std::vector<std::byte> bytes = memory->outputs.bytes();
  if (const std::string wrong = outputs.fault(bytes); !wrong.empty()) return failed(wrong);
  result.outputs = outputs.values(bytes);
  return result;
}

}  // namespace

Kernel in_process_kernel(const nlohmann::json& announced, const std::string& place, const std::string& takes,
                         std::function<void(const CallInMemory&)> function) {
  const std::set<std::string> taken = parse_takes(takes, place);
  Kernel kernel =
      read_announcement({{"kernels", nlohmann::json::array({announced})}}, place, "").at(0).kernel;
  kernel.door = "in_process";
  kernel.without_decay = !taken.contains("decay");
  kernel.run = [described = kernel, taken, function = std::move(function)](const Problem& given) {
    const Problem problem = described.without_decay ? without_neutral_decay(given) : given;
    std::string why = not_offered(described, problem);
    if (why.empty()) why = not_taken(taken, problem);
    if (!why.empty()) return KernelResult{KernelStatus::unsupported, why, {}, 0};
    return run_function(described, function, problem);
  };
  return kernel;
}

}  // namespace attest
