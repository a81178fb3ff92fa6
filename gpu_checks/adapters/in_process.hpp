// The door for functions of this very process: a C++ or Python function of a user's own test. It gets memory laid out
// as a plug-in's is (region.hpp): NaN beside the inputs, poisoned outputs, zones in which a stray write shows. What it
// left is judged as a plug-in's; an exception is `failed`. A crash or an endless loop is the caller's own.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "gpu_checks/kernel.hpp"

namespace attest {

struct TensorInMemory {
  std::string name;
  Format format;
  bool integer = false;  // 64-bit
  std::vector<Index> shape;
  std::byte* data = nullptr;  // row-major, 256-byte aligned
};

struct CallInMemory {
  const Problem* problem = nullptr;
  std::vector<TensorInMemory> inputs, outputs;
  std::shared_ptr<const void> memory;  // of the tensors: who keeps it may read them after the call
};

// What a function throws for a problem that it is not made for: the case is then not run, and not failed.
struct UnsupportedProblem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a function throws whose outputs are no such tensors: the case has failed, for this reason alone.
struct FailedCall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `announced`: the members of a kernel as in PROTOCOL.md, checked as theirs are (BadInput; `place` begins its message).
// takes: the fields beside q, k, v and the options that the function reads, "g beta scale"; a problem with another one
// is unsupported. Exceptions that are no std::exception leave `run`.
Kernel in_process_kernel(const nlohmann::json& announced, const std::string& place, const std::string& takes,
                         std::function<void(const CallInMemory&)> function);

}  // namespace attest
