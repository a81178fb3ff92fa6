#include "gpu_checks/battery/layout.hpp"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

bool per_token(const std::string& name) {
  return name != "decay" && !name.starts_with("initial_state.") && !name.starts_with("dfinal_state.");
}

Index inner_size(const Tensor& tensor, std::size_t from) {
  return element_count({tensor.shape.begin() + static_cast<std::ptrdiff_t>(from), tensor.shape.end()});
}

// [N, H, L, ...] with L levels, zeros in the new ones.
Tensor with_levels(const Tensor& tensor, Index levels) {
  Tensor result{tensor.shape, {}};
  result.shape[2] = levels;
  const Index inner = inner_size(tensor, 3), outer = tensor.shape[0] * tensor.shape[1];
  result.data.assign(static_cast<std::size_t>(outer * levels * inner), 0.0);
  for (Index i = 0; i < outer; ++i)
    std::copy_n(tensor.data.begin() + i * tensor.shape[2] * inner, std::min(tensor.shape[2], levels) * inner,
                result.data.begin() + i * levels * inner);
  return result;
}

// The last axis extended by zeros.
Tensor with_columns(const Tensor& tensor, Index columns) {
  Tensor result{tensor.shape, {}};
  const Index own = tensor.shape.back(), rows = own ? static_cast<Index>(tensor.data.size()) / own : 0;
  result.shape.back() = columns;
  result.data.assign(static_cast<std::size_t>(rows * columns), 0.0);
  for (Index r = 0; r < rows; ++r)
    std::copy_n(tensor.data.begin() + r * own, std::min(own, columns), result.data.begin() + r * columns);
  return result;
}

}  // namespace

Tensor token_range(const Tensor& tensor, Index first, Index last) {
  Tensor cut{tensor.shape, {}};
  cut.shape[1] = last - first;
  const Index inner = inner_size(tensor, 2);
  for (Index b = 0; b < tensor.shape[0]; ++b) {
    const auto from = tensor.data.begin() + (b * tensor.shape[1] + first) * inner;
    cut.data.insert(cut.data.end(), from, from + (last - first) * inner);
  }
  return cut;
}

Problem token_range(const Problem& problem, Index first, Index last) {
  Problem cut = problem;
  cut.tokens = last - first;
  std::erase_if(cut.fields,
                [&](const auto& f) { return first > 0 && f.first.starts_with("initial_state."); });
  for (auto& [name, tensor] : cut.fields)
    if (per_token(name)) tensor = token_range(tensor, first, last);
  return cut;
}

Problem continued_from(Problem problem, const Tensors& outputs, const Declaration& declaration,
                       const std::vector<Index>& consumed) {
  for (const auto& [name, tensor] : outputs)
    if (name.starts_with("final_state.")) problem.fields["initial_state." + name.substr(12)] = tensor;
  if (!declaration.level_scales) return problem;
  Tensor position{{static_cast<Index>(consumed.size())}, {}};
  for (const Index n : consumed) position.data.push_back(static_cast<double>(n));
  problem.fields["initial_state.position"] = position;
  return problem;
}

Tensor batch_entry(const Tensor& tensor, Index b) {
  const Index inner = inner_size(tensor, 1);
  Tensor one{tensor.shape, {tensor.data.begin() + b * inner, tensor.data.begin() + (b + 1) * inner}};
  one.shape[0] = 1;
  return one;
}

Problem batch_entry(const Problem& problem, Index b) {
  Problem one = problem;
  one.batch = 1;
  for (auto& [name, tensor] : one.fields)
    if (name != "decay") tensor = batch_entry(tensor, b);
  return one;
}

Problem sequence_alone(const Problem& problem, Index sequence) {
  if (problem.cu_seqlens.empty()) return batch_entry(problem, sequence);
  const Index first = problem.cu_seqlens[static_cast<std::size_t>(sequence)],
              last = problem.cu_seqlens[static_cast<std::size_t>(sequence) + 1];
  Problem one = problem;
  one.tokens = last - first, one.cu_seqlens.clear();
  for (auto& [name, tensor] : one.fields)
    if (name != "decay")
      tensor = per_token(name) ? token_range(tensor, first, last) : batch_entry(tensor, sequence);
  return one;
}

Problem packed(const std::vector<Problem>& sequences, const Declaration& declaration) {
  Problem all = sequences.at(0);
  all.tokens = 0, all.cu_seqlens = {0}, all.levels = 0;
  Index state_levels = 1;
  for (const Problem& one : sequences) {
    all.levels = std::max(all.levels, one.levels);
    if (const Tensor* state = declaration.level_scales ? one.field("initial_state.S") : nullptr)
      state_levels = std::max(state_levels, state->shape[2]);
  }
  for (auto& [name, tensor] : all.fields)
    if (name != "decay") tensor.data.clear(), tensor.shape[per_token(name) ? 1 : 0] = 0;
  for (const Problem& one : sequences) {
    all.tokens += one.tokens;
    all.cu_seqlens.push_back(all.tokens);
    for (auto& [name, target] : all.fields) {
      if (name == "decay") continue;
      Tensor own = one.fields.at(name);
      if (name == "level_scales") own = with_columns(own, all.levels);
      if (declaration.level_scales && name.starts_with("initial_state.") && name != "initial_state.position")
        own = with_levels(own, state_levels);
      std::vector<Index> shape = own.shape;
      const std::size_t axis = per_token(name) ? 1 : 0;
      shape[axis] += target.shape[axis];
      target.shape = shape;
      target.data.insert(target.data.end(), own.data.begin(), own.data.end());
    }
  }
  return all;
}

Tensor rearranged(const Tensor& tensor, bool per_token, const std::vector<Index>& batch_order,
                  const std::vector<Index>& head_order) {
  const std::size_t head_axis = per_token ? 2 : 1;
  const Index tokens = per_token ? tensor.shape[1] : 1, given = tensor.shape[head_axis];
  const Index inner = inner_size(tensor, head_axis + 1), heads = static_cast<Index>(head_order.size());
  Tensor result{tensor.shape, {}};
  result.shape[0] = static_cast<Index>(batch_order.size()), result.shape[head_axis] = heads;
  result.data.resize(static_cast<std::size_t>(element_count(result.shape)));
  for (std::size_t b = 0; b < batch_order.size(); ++b)
    for (Index t = 0; t < tokens; ++t)
      for (Index h = 0; h < heads; ++h)
        std::copy_n(
            tensor.data.begin() +
                ((batch_order[b] * tokens + t) * given + head_order[static_cast<std::size_t>(h)]) * inner,
            inner, result.data.begin() + ((static_cast<Index>(b) * tokens + t) * heads + h) * inner);
  return result;
}

Problem rearranged(const Problem& problem, const std::vector<Index>& batch_order,
                   const std::vector<Index>& head_order) {
  Problem result = problem;
  result.batch = static_cast<Index>(batch_order.size());
  result.heads = static_cast<Index>(head_order.size());
  for (auto& [name, tensor] : result.fields) {
    if (name == "initial_state.position") {
      const Tensor before = tensor;
      tensor = {{result.batch}, std::vector<double>(batch_order.size())};
      for (std::size_t b = 0; b < batch_order.size(); ++b)
        tensor.data[b] = before.data[static_cast<std::size_t>(batch_order[b])];
    } else if (name == "decay") {
      const Tensor before = tensor;
      tensor = {{result.heads}, std::vector<double>(head_order.size())};
      for (std::size_t h = 0; h < head_order.size(); ++h)
        tensor.data[h] = before.data[static_cast<std::size_t>(head_order[h])];
    } else {
      tensor = rearranged(tensor, per_token(name), batch_order, head_order);
    }
  }
  return result;
}

Problem ungrouped(const Problem& problem) {
  Problem result = problem;
  for (const char* name : {"q", "k", "v"}) {
    const Tensor& own = problem.fields.at(name);
    const Index given = own.shape[2], width = own.shape[3], rows = own.shape[0] * own.shape[1];
    Tensor all{own.shape, {}};
    all.shape[2] = problem.heads;
    for (Index r = 0; r < rows; ++r)
      for (Index h = 0; h < problem.heads; ++h) {
        const auto from = own.data.begin() + (r * given + h / (problem.heads / given)) * width;
        all.data.insert(all.data.end(), from, from + width);
      }
    result.fields[name] = all;
  }
  return result;
}

Problem with_linear_gates(Problem problem) {
  const auto g = problem.fields.find("g");
  if (g == problem.fields.end()) return problem;
  Tensor alpha = std::move(g->second);
  problem.fields.erase(g);
  for (double& x : alpha.data) x = std::exp(x);
  problem.fields["alpha"] = std::move(alpha);
  return problem;
}

}  // namespace attest
