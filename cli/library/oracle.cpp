#include "reference/forms/oracle.hpp"

#include <fmt/format.h>

#include "cli/library/under_test.hpp"
#include "reference/forms/gradient.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

OracleRequest request_of(const OracleOptions& options, const Problem& problem) {
  OracleRequest request;
  if (options.precision == "double-double") {
    if (options.gradient)
      throw BadInput("attest: precision double-double has no gradients, expected adaptive beside gradient");
    request.double_double = true, request.rows = {0, problem.tokens};
  } else if (options.precision != "adaptive") {
    throw BadInput(fmt::format("attest: precision {}: expected adaptive or double-double",
                               in_quotes(options.precision)));
  }
  return request;
}

CertifiedValues to_values(OracleTensor tensor) {
  return {std::move(tensor.shape), std::move(tensor.value), std::move(tensor.low), std::move(tensor.radius),
          std::move(tensor.magnitude)};
}

std::map<std::string, CertifiedValues> evaluate(const std::string& name, const TestInput& input,
                                                const OracleOptions& options) {
  const Operator& op = operator_named(name, options.variant);
  const Problem problem = to_problem(input, op.declaration(), "attest: " + name, options.gradient);
  const OracleRequest request = request_of(options, problem);
  OracleResult result = evaluate_oracle(op, problem, request);
  if (options.gradient)
    for (auto& [gradient, tensor] : evaluate_gradient(op, problem, request).tensors)
      result.tensors[gradient] = std::move(tensor);
  std::map<std::string, CertifiedValues> values;
  for (auto& [tensor_name, tensor] : result.tensors) values[tensor_name] = to_values(std::move(tensor));
  if (!result.final_position.empty())
    values["final_state.position"] = {{static_cast<Index>(result.final_position.size())},
                                      {result.final_position.begin(), result.final_position.end()},
                                      std::vector<double>(result.final_position.size()),
                                      std::vector<double>(result.final_position.size()),
                                      {}};
  return values;
}

}  // namespace

std::map<std::string, CertifiedValues> oracle(const std::string& op, const TestInput& input,
                                              const OracleOptions& options) {
  return refusing([&] { return evaluate(op, input, options); });
}

}  // namespace attest
