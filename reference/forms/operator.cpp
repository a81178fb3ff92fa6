#include "reference/forms/operator.hpp"

namespace attest {
namespace {
constexpr std::string_view names[] = {"direct", "stream", "scan", "chunk"};
}

std::string_view form_name(Form form) { return names[static_cast<int>(form)]; }

std::optional<Form> form_named(std::string_view name) {
  for (int i = 0; i < 4; ++i)
    if (names[i] == name) return static_cast<Form>(i);
  return std::nullopt;
}

const Operator* find_operator(std::string_view name, std::string_view variant) {
  for (const Operator* op : all_operators())
    if (op->declaration().name == name && op->declaration().variant == variant) return op;
  return nullptr;
}

}  // namespace attest
