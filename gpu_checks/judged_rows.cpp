#include "gpu_checks/judged_rows.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <string>

#include "reference/cases/random.hpp"

namespace attest {
namespace {

constexpr Index fewest = 64;
double work = usual_bound_work;

bool walks_for_every_row(const Declaration& declaration, Form form) {
  const bool composed = declaration.name.starts_with("hla") || declaration.name == "ahla";
  return (composed && form != Form::stream) || declaration.beta || !declaration.exact;
}

}  // namespace

void set_bound_work(double products) { work = products; }

std::optional<std::vector<Index>> judged_rows(const Declaration& declaration, const HeadSize& size,
                                              const Evaluation& how, std::uint64_t seed, std::size_t slot) {
  const Index length = size.tokens;
  const double of_a_row =
      static_cast<double>(length) * static_cast<double>(size.key_dim) * static_cast<double>(size.value_dim);
  const Index count = std::max(fewest, static_cast<Index>(work / std::max(of_a_row, 1.0)));
  if (!walks_for_every_row(declaration, how.form) || count >= length) return std::nullopt;
  std::set<Index> rows;
  const auto add = [&](Index row) {
    if (row >= 0 && row < length && static_cast<Index>(rows.size()) < count / 2) rows.insert(row);
  };
  const Index width = how.form == Form::chunk ? how.chunk : 64, last_chunk = (length - 1) / width * width;
  for (const Index row : {length - 1, Index{0}, last_chunk, last_chunk - 1, width, width - 1}) add(row);
  for (Index power = std::bit_floor(static_cast<std::uint64_t>(length - 1)); power > 0; power /= 2)
    add(power), add(power - 1);
  const Index drawn = count - static_cast<Index>(rows.size());
  Random random(seed, "rows/" + std::to_string(slot));
  for (Index i = 0; i < drawn; ++i) {
    const Index first = i * length / drawn, last = (i + 1) * length / drawn;
    rows.insert(first + static_cast<Index>(random.below(static_cast<std::uint64_t>(last - first))));
  }
  return std::vector<Index>(rows.begin(), rows.end());
}

}  // namespace attest
