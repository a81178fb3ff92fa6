// What a refusal says.
#pragma once
#include <string>

#include "reference/tensor/bad_input.hpp"

namespace attest {

template <class Action>
std::string message_of(Action action) {
  try {
    action();
    return "nothing thrown";
  } catch (const BadInput& error) {
    return error.what();
  }
}

}  // namespace attest
