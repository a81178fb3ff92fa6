// Property tests of an attention kernel, from a test of your own: find_package(attest), link attest::attest.
//   void mine(const attest::Call& call);  // reads call.input<float>("q"), writes call.output<float>("o")
//   const attest::Result result = attest::check({.op = "hla2", .form = "stream algebra=direct",
//                                                .contract = "input=fp32 output=fp32", .run = mine});
//   EXPECT_TRUE(result) << result;        // the report in ten lines, with the line that repeats it
// Tensors are row-major: q, k [B, T, H, d], v, o [B, T, H, dv], g (log-gate <= 0), alpha, beta [B, T, H], decay [H],
// level_scales [B, T, H, L], cu_seqlens [N + 1], initial_state.X, final_state.X [N, H, ...]; `attest list` names operators,
// fields, options and states. What cannot be (an unknown operator, a shape that does not fit) is refused by
// std::invalid_argument, in one line. The words of form, contract, features and limits are those of attest_kernel.h.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace attest {

// ---- a kernel under test

enum class Element : std::uint8_t { float64, float32, float16, bfloat16, int64 };

struct CallTensor {
  std::string name;
  Element element = Element::float32;
  std::vector<std::int64_t> shape;
  void* data = nullptr;  // row-major, 256-byte aligned; NaN lies around inputs, outputs are poisoned
  std::int64_t size() const {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    return count;
  }
};

// Thrown by a kernel for a problem that it is not made for: not run, rather than failed.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Thrown by a kernel whose outputs are not what they should be: it has failed, for this reason.
struct WrongOutput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Thrown by a kernel to end the whole check, which throws it on: what is no failure of the kernel, such as Ctrl-C.
struct Interruption {
  std::exception_ptr reason;
};

// One problem, in memory. The elements have the formats of the contract: double, float (fp32 and tf32), a type of two
// bytes (fp16, bf16), std::int64_t (cu_seqlens, initial_state.position).
struct Call {
  std::int64_t batch = 0, tokens = 0, heads = 0, key_dim = 0, value_dim = 0;
  std::vector<CallTensor> inputs, outputs;  // an output that is not listed is not wanted
  std::map<std::string, double> options;    // that differ from their defaults
  std::shared_ptr<const void> memory;       // keeps the tensors readable after the call

  const CallTensor* find_input(std::string_view name) const { return find(inputs, name); }
  const CallTensor* find_output(std::string_view name) const { return find(outputs, name); }
  double option(const std::string& key, double otherwise) const {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
  }
  // The elements of a tensor; Unsupported where the problem has none of that name.
  template <class T>
  std::span<const T> input(std::string_view name) const {
    return elements<const T>(find_input(name), name);
  }
  template <class T>
  std::span<T> output(std::string_view name) const {
    return elements<T>(find_output(name), name);
  }

 private:
  static const CallTensor* find(const std::vector<CallTensor>& list, std::string_view name) {
    for (const CallTensor& tensor : list)
      if (tensor.name == name) return &tensor;
    return nullptr;
  }
  template <class T>
  static bool holds(Element element) {
    if (element == Element::float64) return std::is_same_v<T, double>;
    if (element == Element::float32) return std::is_same_v<T, float>;
    if (element == Element::int64) return std::is_integral_v<T> && sizeof(T) == 8;
    return std::is_trivially_copyable_v<T> && sizeof(T) == 2;
  }
  template <class T>
  static std::span<T> elements(const CallTensor* tensor, std::string_view name) {
    if (!tensor)
      throw Unsupported("the kernel uses " + std::string(name) + ", which the problem does not have");
    if (!holds<std::remove_const_t<T>>(tensor->element))
      throw std::invalid_argument("the elements of " + std::string(name) +
                                  " have another type than asked for");
    return {static_cast<T*>(tensor->data), static_cast<std::size_t>(tensor->size())};
  }
};

struct KernelUnderTest {
  std::string name = "kernel";  // up to 100 characters of A-Z a-z 0-9 . _ -
  std::string op, variant = "masked";
  std::string form;      // "direct", "stream", "scan", "chunk c=64 algebra=direct"
  std::string contract;  // "input=bf16 product=bf16 accumulate=fp32 output=bf16"; unnamed: fp32
  // Of: varlen initial_state final_state grouped backward deterministic batch_invariant nan_contained. With `backward`
  // some calls have the input do (and dfinal_state.X), and then the outputs dq, dk ... too.
  std::string features = {};
  std::string limits = {};  // "d=1..256 dv=1..256 t=0..8192"; unnamed: unlimited
  // Of: g alpha beta level_scales decay scale normalize epsilon ridge. Problems with another field or option are not run.
  std::string takes = "scale";
  // An exception of any type but Interruption is a failure; a crash or an endless loop ends the test program.
  std::function<void(const Call&)> run;
};

// ---- is it right?

struct CheckOptions {
  std::optional<std::uint64_t> seed = {};  // none: drawn; the report names it
  bool full = false;                       // more inputs of every kind
  std::string only = {};                   // glob of the battery's checks (`attest list --checks`)
};

struct CheckVerdict {
  std::string check, verdict, reason;  // "lattice", "FAIL", one line
};

class Result {
 public:
  bool passed() const { return verdict == "PASS"; }
  // FAIL or SUSPECT; neither passed nor failed: UNDECIDED or NOT RUN, which prove nothing.
  bool failed() const { return verdict == "FAIL" || verdict == "SUSPECT"; }
  explicit operator bool() const { return passed(); }
  // At most ten lines, the last of them `replay    ` and what repeats the check; empty: the call in C++.
  std::string summary(const std::string& replay = {}) const;

  std::string verdict;  // "PASS", "FAIL", "SUSPECT", "UNDECIDED", "NOT RUN"
  std::vector<CheckVerdict> checks;
  std::uint64_t seed = 0;
  bool full = false;
  std::string first_bad;  // the check that decided the verdict; empty: none
  std::string lines;      // of the summary, without the last
  std::string replay;     // the call in C++
};
std::ostream& operator<<(std::ostream& out, const Result& result);

// The battery (`attest check --battery`), in this process, on one thread.
Result check(const KernelUnderTest& kernel, const CheckOptions& options = {});

// ---- single inputs

struct Values {
  std::vector<std::int64_t> shape;
  std::vector<double> data;  // row-major
};

struct TestInput {
  std::map<std::string, Values> fields;   // "q", "k", "v", ...
  std::vector<std::string> options = {};  // "decay=3/4", exact
};

// o (and nothing else) against the oracle, within the bound that follows from the contract. The case line is that of
// `attest check --case`: "hla2 T=64 d=16 dv=16 H=2 recipe=gaussian seed=7".
Result check_case(const KernelUnderTest& kernel, const std::string& case_line);
Result check_input(const KernelUnderTest& kernel, const TestInput& input);
// What a case line draws, before it is rounded to the contract's formats.
TestInput draw_input(const std::string& case_line);
// The names for recipe= and gates= in a case line, the plainest first.
std::vector<std::string> recipe_names();
std::vector<std::string> gate_recipe_names();

// ---- the oracle

// |exact - (value + low)| <= radius, elementwise; magnitude: the sum of the absolute values of the terms.
struct CertifiedValues {
  std::vector<std::int64_t> shape;
  std::vector<double> value, low, radius, magnitude;
};

struct OracleOptions {
  std::string variant = "masked";
  std::string precision =
      "adaptive";         // within 2^-100, or "double-double": certified radii up to 2^-60 of the magnitude,
                          // hundreds of times faster, without final states
  bool gradient = false;  // also dq, dk, ... from the fields "do", "dfinal_state.X"
};

// o and final_state.X (log-linear: final_state.position too), dq ... Inputs are taken as given, rounded to nothing.
std::map<std::string, CertifiedValues> oracle(const std::string& op, const TestInput& input,
                                              const OracleOptions& options = {});

}  // namespace attest
