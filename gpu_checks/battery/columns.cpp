#include "gpu_checks/battery/columns.hpp"

#include <algorithm>

namespace attest {
namespace {

constexpr Index narrow_enough = 16;  // of keys and values together: less is not worth a copy

enum class Axis { other, key, value };

// What the last two axes of an input, output or state count.
std::pair<Axis, Axis> last_axes(const std::string& name, const Declaration& declaration) {
  if (name == "q" || name == "k") return {Axis::other, Axis::key};
  if (name == "v" || name == "o") return {Axis::other, Axis::value};
  if (!name.starts_with("initial_state.") && !name.starts_with("final_state."))
    return {Axis::other, Axis::other};
  const std::string moment = name.substr(name.find('.') + 1);
  for (const Moment& m : declaration.moments) {
    if (m.name == moment) return {Axis::key, m.value_columns ? Axis::value : Axis::key};
    if (m.normaliser == moment) return {Axis::other, Axis::key};
  }
  return {Axis::other, Axis::other};
}

// A tensor as [outer, columns, inner] around one of its axes.
struct Around {
  Around(const Tensor& tensor, std::size_t axis) : columns(tensor.shape[axis]) {
    for (std::size_t i = 0; i < tensor.shape.size(); ++i)
      if (i != axis) (i < axis ? outer : inner) *= tensor.shape[i];
  }
  Index outer = 1, columns, inner = 1;
};

void mark(const Tensor& tensor, std::size_t axis, std::vector<bool>& used) {
  const Around a(tensor, axis);
  for (std::size_t i = 0; i < tensor.data.size(); ++i)
    if (tensor.data[i] != 0) used[i / static_cast<std::size_t>(a.inner) % used.size()] = true;
}

// Columns `from[i]` of the one become columns `to[i]` of the other, which has so many and is zero elsewhere.
Tensor moved(const Tensor& tensor, std::size_t axis, const std::vector<Index>& from,
             const std::vector<Index>& to, Index columns) {
  const Around a(tensor, axis);
  Tensor result{tensor.shape, {}};
  result.shape[axis] = columns;
  result.data.assign(static_cast<std::size_t>(a.outer * columns * a.inner), 0.0);
  for (Index o = 0; o < a.outer; ++o)
    for (std::size_t i = 0; i < from.size(); ++i)
      std::copy_n(tensor.data.begin() + (o * a.columns + from[i]) * a.inner, a.inner,
                  result.data.begin() + (o * columns + to[i]) * a.inner);
  return result;
}

template <class F>
void each_axis(const std::string& name, const Tensor& tensor, const Declaration& declaration, F&& f) {
  const auto [before, last] = last_axes(name, declaration);
  const std::size_t rank = tensor.shape.size();
  if (before != Axis::other) f(rank - 2, before);
  if (last != Axis::other) f(rank - 1, last);
}

std::vector<Index> numbers_of(std::vector<bool> used) {
  if (!used.empty() && std::ranges::none_of(used, [](bool one) { return one; })) used[0] = true;
  std::vector<Index> list;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) list.push_back(static_cast<Index>(i));
  return list;
}

std::vector<Index> first_numbers(std::size_t count) { return numbers_of(std::vector<bool>(count, true)); }

}  // namespace

Narrowed::Narrowed(const Problem& problem, const Declaration& declaration)
    : whole_(problem), declaration_(declaration) {
  const bool scale_of_width = !declaration.unit_scale && !problem.options.scale;
  if (scale_of_width || problem.key_dim + problem.value_dim <= narrow_enough) return;
  std::vector<bool> keys(static_cast<std::size_t>(problem.key_dim)),
      values(static_cast<std::size_t>(problem.value_dim));
  for (const auto& [name, tensor] : problem.fields)
    each_axis(name, tensor, declaration,
              [&](std::size_t at, Axis axis) { mark(tensor, at, axis == Axis::key ? keys : values); });
  keys_ = numbers_of(keys), values_ = numbers_of(values);
  narrow_ = problem;
  narrow_->key_dim = std::ssize(keys_), narrow_->value_dim = std::ssize(values_);
  for (auto& [name, tensor] : narrow_->fields)
    each_axis(name, tensor, declaration, [&, &field = tensor](std::size_t at, Axis axis) {
      const std::vector<Index>& kept = axis == Axis::key ? keys_ : values_;
      field = moved(field, at, kept, first_numbers(kept.size()), std::ssize(kept));
    });
}

Tensors Narrowed::widened(Tensors outputs) const {
  if (!narrow_) return outputs;
  for (auto& [name, tensor] : outputs)
    each_axis(name, tensor, declaration_, [&, &output = tensor](std::size_t at, Axis axis) {
      const std::vector<Index>& kept = axis == Axis::key ? keys_ : values_;
      output = moved(output, at, first_numbers(kept.size()), kept,
                     axis == Axis::key ? whole_.key_dim : whole_.value_dim);
    });
  return outputs;
}

}  // namespace attest
