// From the public types of attest/attest.hpp to those of the layers below.
#pragma once
#include <attest/attest.hpp>

#include "gpu_checks/kernel.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

Kernel to_kernel(const KernelUnderTest& kernel);
// `label` begins the message about a field that does not fit.
Problem to_problem(const TestInput& input, const Declaration& declaration, const std::string& label,
                   bool with_cotangents);

// What BadInput says inside, std::invalid_argument says to the user.
template <class F>
auto refusing(F&& f) {
  try {
    return f();
  } catch (const BadInput& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace attest
