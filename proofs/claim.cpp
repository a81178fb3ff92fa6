#include "proofs/claim.hpp"

namespace attest {

Inputs<Degree> degree_inputs(const Fields& fields) {
  Inputs<Degree> inputs;
  for (const Field& field : fields) {
    Matrix<Degree> value(field.rows, field.cols);
    for (Index i = 0; i < value.size(); ++i) value.data()[i] = Degree::of_degree(1);
    inputs.put(field.name) = value;
  }
  return inputs;
}

Index largest_degree(const Comparisons<Degree>& comparisons) {
  Index largest = 0;
  for (const auto& comparison : comparisons)
    for (const auto* side : {&comparison.left, &comparison.right})
      for (Index i = 0; i < side->size(); ++i) largest = std::max(largest, side->data()[i].degree());
  return largest;
}

std::vector<Shape> all_shapes(Index max_tokens, Index max_dim) {
  std::vector<Shape> shapes;
  for (Index tokens = 0; tokens <= max_tokens; ++tokens)
    for (Index key_dim = 1; key_dim <= max_dim; ++key_dim)
      for (Index value_dim = 1; value_dim <= max_dim; ++value_dim)
        shapes.push_back({tokens, key_dim, value_dim, 0});
  return shapes;
}

std::vector<Shape> positioned_shapes(Index max_tokens, Index max_dim) {
  std::vector<Shape> shapes;
  for (const Shape& shape : all_shapes(max_tokens, max_dim)) {
    shapes.push_back(shape);
    Shape later = shape;
    later.position = 1 + (shape.tokens + 3 * shape.key_dim + 5 * shape.value_dim) % 14;
    shapes.push_back(later);
  }
  return shapes;
}

std::vector<Shape> token_shapes(Index max_tokens) {
  std::vector<Shape> shapes;
  for (Index tokens = 0; tokens <= max_tokens; ++tokens) shapes.push_back({tokens, 1, 1, 0});
  return shapes;
}

}  // namespace attest
