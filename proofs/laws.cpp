#include "proofs/laws.hpp"

#include <bit>

namespace attest {

Fields operator_fields(const Declaration& d, const Shape& shape, bool undecayed) {
  const auto [tokens, key_dim, value_dim, position] = shape;
  Fields fields = {{"q", tokens, key_dim}, {"k", tokens, key_dim}, {"v", tokens, value_dim}};
  if (d.gates) fields.push_back({"alpha", tokens, 1, Domain::gate});
  if (d.beta) fields.push_back({"beta", tokens, 1, Domain::gate});
  if (d.decay && !undecayed) fields.push_back({"decay", 1, 1, Domain::gate});
  if (d.ridge) fields.push_back({"ridge"});
  if (d.level_scales) {
    const auto last = static_cast<std::uint64_t>(std::max<Index>(position + tokens - 1, 0));
    fields.push_back({"level_scales", tokens, std::bit_width(last) + 1});
    for (int bit = 0; bit < 63; ++bit)
      if (position >> bit & 1) fields.push_back({"initial.S." + std::to_string(bit + 1), key_dim, value_dim});
  } else {
    for (const Moment& moment : d.moments)
      fields.push_back({"initial." + moment.name, key_dim, moment.value_columns ? value_dim : key_dim});
  }
  return fields;
}

std::vector<Shape> operator_shapes(const Declaration& d) { return d.level_scales ? positioned_shapes() : all_shapes(); }

std::string law_id(const Declaration& d, const std::string& law) { return "law." + d.name + "." + d.variant + "." + law; }

std::vector<Index> chunk_widths(const Declaration& d, Index tokens) {
  std::vector<Index> widths;
  for (Index width = 1; width <= 2 * std::max<Index>(tokens, 1); d.level_scales ? width *= 2 : ++width) {
    widths.push_back(width);
    if (width > tokens) break;
  }
  return widths;
}

}  // namespace attest
