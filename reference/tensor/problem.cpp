#include "reference/tensor/problem.hpp"

namespace attest {
namespace {

struct Span {
  Index batch, first, last;
};

Span sequence_span(const Problem& problem, Index sequence) {
  if (problem.cu_seqlens.empty()) return {sequence, 0, problem.tokens};
  return {0, problem.cu_seqlens[sequence], problem.cu_seqlens[sequence + 1]};
}

}  // namespace

Index element_count(const std::vector<Index>& shape) {
  Index count = 1;
  for (Index size : shape) count *= size;
  return count;
}

std::string to_text(const Options& options) {
  std::string text;
  const auto add = [&](const std::string& entry) { text += (text.empty() ? "" : " ") + entry; };
  if (options.decay) add("decay=" + to_text(*options.decay));
  if (options.epsilon != 0) add("epsilon=" + to_text(options.epsilon));
  if (options.normalize) add("normalize=true");
  if (options.ridge != 0) add("ridge=" + to_text(options.ridge));
  if (options.scale) add("scale=" + to_text(*options.scale));
  return text;
}

std::vector<Slot> slots(const Problem& problem) {
  std::vector<Slot> list;
  for (Index s = 0; s < problem.sequences(); ++s)
    for (Index h = 0; h < problem.heads; ++h) {
      const auto [batch, first, last] = sequence_span(problem, s);
      list.push_back({batch, s, h, first, last});
    }
  return list;
}

std::vector<Index> initial_positions(const Problem& problem) {
  std::vector<Index> positions(static_cast<std::size_t>(problem.sequences()), 0);
  if (const Tensor* given = problem.field("initial_state.position"))
    for (std::size_t s = 0; s < positions.size(); ++s) positions[s] = static_cast<Index>(given->data[s]);
  return positions;
}

std::vector<Index> final_positions(const Problem& problem) {
  std::vector<Index> positions = initial_positions(problem);
  for (std::size_t s = 0; s < positions.size(); ++s) {
    const auto [batch, first, last] = sequence_span(problem, static_cast<Index>(s));
    positions[s] += last - first;
  }
  return positions;
}

}  // namespace attest
