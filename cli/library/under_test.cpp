#include "cli/library/under_test.hpp"

#include <fmt/format.h>

#include "gpu_checks/adapters/announcement.hpp"
#include "gpu_checks/adapters/in_process.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

Element element_of(const TensorInMemory& tensor) {
  if (tensor.integer) return Element::int64;
  if (tensor.format == fp64) return Element::float64;
  if (tensor.format.width > 16) return Element::float32;
  return tensor.format == bf16 ? Element::bfloat16 : Element::float16;
}

std::vector<CallTensor> tensors_of(const std::vector<TensorInMemory>& list) {
  std::vector<CallTensor> tensors;
  for (const TensorInMemory& t : list) tensors.push_back({t.name, element_of(t), t.shape, t.data});
  return tensors;
}

Call to_call(const CallInMemory& from) {
  const Problem& problem = *from.problem;
  Call call;
  call.batch = problem.batch, call.tokens = problem.tokens, call.heads = problem.heads;
  call.key_dim = problem.key_dim, call.value_dim = problem.value_dim;
  call.inputs = tensors_of(from.inputs), call.outputs = tensors_of(from.outputs);
  const nlohmann::json options = options_of(problem);
  for (const auto& [key, option] : options.items()) call.options[key] = option["value"].get<double>();
  call.memory = from.memory;
  return call;
}

}  // namespace

Kernel to_kernel(const KernelUnderTest& kernel) {
  if (!kernel.run)
    throw BadInput("attest: kernel " + in_quotes(kernel.name) + ": run is empty, expected a function");
  const nlohmann::json announced{{"name", kernel.name},         {"op", kernel.op},
                                 {"variant", kernel.variant},   {"form", kernel.form},
                                 {"contract", kernel.contract}, {"features", kernel.features},
                                 {"limits", kernel.limits}};
  return in_process_kernel(announced, "attest", kernel.takes, [run = kernel.run](const CallInMemory& call) {
    try {
      run(to_call(call));
    } catch (const Unsupported& why) {
      throw UnsupportedProblem(why.what());
    } catch (const WrongOutput& why) {
      throw FailedCall(why.what());
    } catch (const std::exception&) {
      throw;
    } catch (const Interruption&) {
      throw;
    } catch (...) {
      throw std::runtime_error("something that is no std::exception");
    }
  });
}

Problem to_problem(const TestInput& input, const Declaration& declaration, const std::string& label,
                   bool with_cotangents) {
  Tensors fields;
  for (const auto& [name, values] : input.fields) {
    Index count = 1;
    for (const Index n : values.shape) {
      if (n < 0 || (n > 0 && count > (Index{1} << 40) / n))
        throw BadInput(fmt::format("{}: tensor {}: the size {}, expected 0 to 2^40 elements", label,
                                   in_quotes(name), n));
      count *= n;
    }
    if (count != static_cast<Index>(values.data.size()))
      throw BadInput(fmt::format("{}: tensor {}: {} values, expected {} of its shape", label, in_quotes(name),
                                 values.data.size(), count));
    fields[name] = {values.shape, values.data};
  }
  Problem problem = make_problem(std::move(fields), declaration, parse_options(declaration, input.options),
                                 label, with_cotangents ? Cotangents::required : Cotangents::unused);
  if (!problem.ignored.empty())
    throw BadInput(fmt::format("{}: tensor {}: {} ({}) does not take it", label,
                               in_quotes(problem.ignored[0]), declaration.name, declaration.variant));
  return problem;
}

}  // namespace attest
