#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"

#include <algorithm>
#include <chrono>

#include "gpu_checks/kernels/cpu/emulated_arithmetic.hpp"
#include "reference/forms/batch.hpp"

namespace attest {

namespace {

// alpha = exp(g), rounded correctly to the contract's gate format.
template <class S>
void exponentiate_gates(const Contract& contract, Head<S>& head) {
  for (std::size_t t = 0; t < head.log_gate.size(); ++t)
    head.alpha[t] = static_cast<S>(exponential(contract.gate_sum, head.log_gate[t]));
}

// o and the final states, rounded to the output and the state format; o after the normaliser was divided out.
template <class S>
Tensors evaluate(const Operator& op, const Problem& problem, const Evaluation& how,
                 const Contract& contract) {
  const Declaration& declaration = op.declaration();
  Contract inner = contract;
  if (problem.options.normalize) inner.output = contract.accumulate;
  EmulatedArithmetic<S> arithmetic(inner);
  Tensors outputs;
  for (const auto& [name, shape] : output_shapes(problem, declaration))
    outputs[name] = {shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)), 0.0)};
  const Index levels = final_levels(problem, declaration);
  for (const Slot& slot : slots(problem)) {
    Head<S> head = head_of<S>(problem, declaration, slot);
    exponentiate_gates(contract, head);
    Solution<S> solution = op.evaluate(head, how, arithmetic);
    divide_out(problem, solution.o);
    std::string last;  // an output's entries come one after another
    Tensor* tensor = nullptr;
    const Format* format = nullptr;  // none: what the registers hold is in it
    visit_outputs(problem, declaration, slot, solution, levels,
                  [&](const std::string& name, Index flat, const S& value) {
                    if (!tensor || name != last) {
                      last = name, tensor = &outputs.at(name);
                      format = name == "o" ? &contract.output : &contract.state;
                      if (std::is_same_v<S, float> && *format == fp32) format = nullptr;
                    }
                    const auto x = static_cast<double>(value);
                    tensor->data[static_cast<std::size_t>(flat)] = format ? round_to(*format, x) : x;
                  });
  }
  return outputs;
}

bool decayed(const Problem& problem) {
  if (const Tensor* decay = problem.field("decay"))
    return std::any_of(decay->data.begin(), decay->data.end(), [](double gamma) { return gamma != 1; });
  return problem.options.decay.value_or(1) != 1;
}

KernelResult run_on_cpu(const Operator& op, const Problem& problem, const Evaluation& how,
                        const Contract& contract, std::string_view limits) {
  const Declaration& declaration = op.declaration();
  if (std::string why = outside_limits(limits, problem); !why.empty())
    return {KernelStatus::unsupported, why, {}, 0};
  if (!declaration.decayed_scan && (how.form == Form::scan || how.form == Form::chunk) && decayed(problem))
    return {KernelStatus::unsupported,
            "with decay other than 1 this operator has no " + std::string(form_name(how.form)),
            {},
            0};
  const auto start = std::chrono::steady_clock::now();
  KernelResult result;
  result.outputs = emulated_in_double(contract) ? evaluate<double>(op, problem, how, contract)
                                                : evaluate<float>(op, problem, how, contract);
  result.nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  return result;
}

// Names and lines; which forms are given which contract is decided below.
struct Named {
  const char* name;
  const char* line;
};
constexpr Named fp32_contract{"fp32", ""};
constexpr Named bf16_contract{"bf16", "input=bf16 product=bf16 intermediate=bf16 output=bf16"};
constexpr Named bf16_state{"bf16state", "input=bf16 product=bf16 intermediate=bf16 state=bf16 output=bf16"};
constexpr Named fp16_contract{"fp16", "input=fp16 product=fp16 intermediate=fp16 output=fp16"};
constexpr Named tf32_contract{"tf32", "product=tf32"};
constexpr Named truncating{"bf16trunc",
                           "input=bf16 product=bf16 accumulate=fp32/truncate intermediate=bf16 output=bf16"};
constexpr Named fp64_contract{
    "fp64", "input=fp64 product=fp64 accumulate=fp64 intermediate=fp64 state=fp64 gate_sum=fp64 output=fp64"};
// Streams multiply in their accumulator's format: their products round nothing.
constexpr Named stream_bf16{"bf16", "input=bf16 output=bf16"};
constexpr Named stream_bf16_state{"bf16state", "input=bf16 state=bf16 output=bf16"};

struct Offer {
  Form form;
  Index chunk;
  std::vector<Named> contracts;
};

std::vector<Offer> offers(const Declaration& declaration) {
  if (declaration.name == "softmax") return {{Form::stream, 0, {fp32_contract, stream_bf16}}};
  if (declaration.variant != "masked")
    return {{Form::stream, 0, {fp32_contract}},
            {Form::chunk, 16, {fp32_contract}},
            {Form::chunk, 64, {fp32_contract}},
            {Form::scan, 0, {fp32_contract}}};
  return {
      {Form::stream, 0, {fp32_contract, stream_bf16, stream_bf16_state}},
      {Form::chunk, 16, {fp32_contract, bf16_contract}},
      {Form::chunk,
       64,
       {fp32_contract, tf32_contract, bf16_contract, truncating, bf16_state, fp16_contract, fp64_contract}},
      {Form::scan, 0, {fp32_contract}}};
}

// The maps of the printed third-order segment have key_dim^3 value_dim entries for every token.
std::string limits_of(const Declaration& declaration, Form form) {
  const bool huge = declaration.name == "hla3" && declaration.variant == "printed" && form == Form::scan;
  return huge ? "d=1..8 dv=1..8" : "";
}

}  // namespace

Kernel cpu_kernel(const Operator& op, const Evaluation& how, std::string_view contract_name,
                  const Contract& contract) {
  const Declaration& declaration = op.declaration();
  Kernel kernel;
  kernel.name = "cpu." + declaration.name;
  if (declaration.variant != "masked") kernel.name += '.' + declaration.variant;
  kernel.name += '.' + std::string(form_name(how.form));
  if (how.form == Form::chunk) kernel.name += std::to_string(how.chunk);
  if (declaration.algebras.size() > 1)
    kernel.name += '.' + declaration.algebras[static_cast<std::size_t>(how.algebra)];
  kernel.name += '.' + std::string(contract_name);
  kernel.op = declaration.name, kernel.variant = declaration.variant;
  kernel.how = how, kernel.form = form_text(declaration, how), kernel.contract = contract;
  kernel.features = "varlen initial_state final_state grouped deterministic batch_invariant";
  if (declaration.moments.empty()) kernel.features = "varlen grouped deterministic batch_invariant";
  kernel.limits = limits_of(declaration, how.form);
  kernel.run = [&op, how, contract, limits = kernel.limits](const Problem& problem) {
    return run_on_cpu(op, problem, how, contract, limits);
  };
  return kernel;
}

std::vector<Kernel> cpu_kernels() {
  std::vector<Kernel> list;
  for (const Operator* op : all_operators())
    for (const Offer& offer : offers(op->declaration()))
      for (int algebra = 0; algebra < static_cast<int>(op->declaration().algebras.size()); ++algebra)
        for (const Named& named : offer.contracts)
          list.push_back(
              cpu_kernel(*op, {offer.form, offer.chunk, algebra}, named.name, parse_contract(named.line)));
  return list;
}

}  // namespace attest
