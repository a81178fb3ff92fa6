// The backward of the production kernels: by the reverse tape over the chunk form, in double, rounded once to the contract's
// formats. No algebra of a backward kernel is written out here, so the edits are what goes wrong around it: rows, heads,
// chunk borders, states, sums, addresses.
#include <algorithm>

#include "gpu_checks/battery/reverse_tape.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "gpu_checks/mutants/production.hpp"

namespace attest {
namespace {

constexpr Index C = production_chunk;

Tensor* field_of(Problem& problem, const char* name) {
  const auto found = problem.fields.find(name);
  return found == problem.fields.end() ? nullptr : &found->second;
}

class Backward {
 public:
  Backward(const Production& kernel, const Problem& problem, Memory& memory)
      : kernel_(kernel),
        given_(problem),
        problem_(recomputed(problem)),
        contract_(production_contract(kernel.bf16)),
        memory_(memory) {}

  Tensors run() {
    for (const auto& [name, shape] : gradient_shapes(given_))
      gradients_[name] = {shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)), 0.0)};
    for (const Slot& slot : slots(problem_)) one_head(slot);
    if (is(Edit::backward_beta_key_side_missing)) beta_of_values();
    for (auto& [name, tensor] : gradients_) finish(name, tensor);
    return std::move(gradients_);
  }

 private:
  bool is(Edit edit) const { return kernel_.edit == edit; }

  // What the backward takes for the inputs of the forward.
  Problem recomputed(Problem problem) const {
    const bool joined = is(Edit::backward_packed_no_reset) && !problem.cu_seqlens.empty();
    for (auto& [name, tensor] : problem.fields)
      if (is(Edit::backward_state_from_zero) && name.starts_with("initial_state.") &&
          name != "initial_state.position")
        std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
    std::erase_if(problem.fields, [&](const auto& field) {
      const bool cotangent = field.first.starts_with("dfinal_state.");
      return (cotangent && (joined || is(Edit::backward_final_cotangent_ignored))) ||
             (joined && (field.first.starts_with("initial_state.") || field.first == "cu_seqlens"));
    });
    if (Tensor* g = field_of(problem, "g")) {
      if (is(Edit::backward_gates_ignored)) std::fill(g->data.begin(), g->data.end(), 0.0);
      if (is(Edit::backward_gates_shifted))
        std::rotate(g->data.rbegin(), g->data.rbegin() + g->shape[2], g->data.rend());
    }
    if (joined) problem.cu_seqlens.clear();
    if (is(Edit::backward_ridge_dropped)) problem.options.ridge = Rational(0);
    return problem;
  }

  void one_head(const Slot& slot) {
    if (!is(Edit::backward_state_not_carried)) return accumulate(problem_, slot, 0, slot.last - slot.first);
    // Every chunk by itself: what later outputs and the final state owe to it is lost.
    const Index end = slot.last - slot.first;
    for (Index first = 0; first < end; first += C) {
      Problem part = problem_;
      Tensor& cotangent = part.fields.at("do");
      const Index width = cotangent.shape[2] * cotangent.shape[3];
      for (Index i = 0; i < static_cast<Index>(cotangent.data.size()); ++i) {
        const Index place = i / width % part.tokens - slot.first;
        if (place < first || place >= first + C) cotangent.data[static_cast<std::size_t>(i)] = 0;
      }
      if (first + C < end)
        std::erase_if(part.fields,
                      [](const auto& field) { return field.first.starts_with("dfinal_state."); });
      accumulate(part, slot, first, first + C);
    }
  }

  // Adds the gradients of the rows [first, last) of the sequence, with the first of them that of its initial state.
  void accumulate(const Problem& problem, const Slot& slot, Index first, Index last) {
    reverse<double>(*kernel_.op, problem, slot, {Form::chunk, C, 0},
                    [&](const std::string& name, Index flat, double dx) {
                      const auto found = gradients_.find('d' + name);
                      if (found == gradients_.end()) return;
                      const std::vector<Index>& shape = found->second.shape;
                      if (name.starts_with("initial_state.")) {
                        if (first > 0) return;
                      } else {
                        const Index place = token_of(shape, flat) - slot.first;
                        if (place < first || place >= last) return;
                        const Index sharing = problem.heads / shape[2];
                        if (is(Edit::backward_heads_not_summed) && slot.head % sharing != 0) return;
                      }
                      found->second.data[static_cast<std::size_t>(flat)] += dx;
                    });
  }

  static Index row_size(const std::vector<Index>& shape) {
    return element_count({shape.begin() + 2, shape.end()});
  }
  static Index token_of(const std::vector<Index>& shape, Index flat) {
    return flat / row_size(shape) % shape[1];
  }
  // First and last token of the sequence that a token of the batch belongs to.
  std::pair<Index, Index> sequence_of(Index token) const {
    for (std::size_t i = 1; i < given_.cu_seqlens.size(); ++i)
      if (token < given_.cu_seqlens[i]) return {given_.cu_seqlens[i - 1], given_.cu_seqlens[i]};
    return {0, given_.tokens};
  }

  // With v written beta v' the gradient of beta is v' dv' summed; the keys have beta too.
  void beta_of_values() {
    const Tensor &v = given_.fields.at("v"), &beta = given_.fields.at("beta"), &dv = gradients_.at("dv");
    if (v.shape[2] != given_.heads) return;
    Tensor& dbeta = gradients_.at("dbeta");
    for (std::size_t row = 0; row < dbeta.data.size(); ++row) {
      if (beta.data[row] == 0) continue;
      dbeta.data[row] = 0;
      const auto width = static_cast<std::size_t>(given_.value_dim);
      for (std::size_t c = row * width; c < (row + 1) * width; ++c)
        dbeta.data[row] += v.data[c] * dv.data[c] / beta.data[row];
    }
  }

  void finish(const std::string& name, Tensor& tensor) {
    const std::vector<double> right = tensor.data;
    std::vector<double>& before = memory_.scratch[name];  // whatever the allocator hands out again
    const bool same_size = before.size() == right.size();
    if (name.starts_with("dinitial_state."))
      finish_state(tensor, right);
    else
      for (std::size_t i = 0; i < right.size(); ++i) {
        const Index flat = static_cast<Index>(i), row = row_size(tensor.shape),
                    token = token_of(tensor.shape, flat);
        const auto [start, end] = sequence_of(token);
        const Index place = token - start, left = end - token - 1, in_chunk = place % C;
        // The same entry of a later row, zero behind the sequence.
        const auto later = [&](Index steps) {
          return steps > left ? 0.0 : right[static_cast<std::size_t>(flat + steps * row)];
        };
        double& x = tensor.data[i];
        if (name == "dq" && is(Edit::backward_scale_missing) && given_.options.scale)
          x /= nearest_double(*given_.options.scale);
        if (name == "dk" && is(Edit::backward_chunk_last_key) && (in_chunk == C - 1 || left == 0)) x = 0;
        if (name == "dk" && is(Edit::backward_rows_unwritten) && place >= (end - start) / C * C)
          x = same_size ? before[i] : 0.75;
        if (name == "dv" && is(Edit::backward_border_twice) && place > 0 && in_chunk == 0) x *= 2;
        if (name == "dv" && is(Edit::backward_accumulates) && same_size) x += before[i];
        if (name == "dv" && is(Edit::backward_values_heads_first)) {
          const Index heads = tensor.shape[2], width = tensor.shape[3],
                      batch = flat / (row * tensor.shape[1]);
          const Index h = flat / width % heads, c = flat % width;
          tensor.data[static_cast<std::size_t>(((batch * heads + h) * tensor.shape[1] + token) * width + c)] =
              right[i];
        }
        if (name == "dg" && is(Edit::backward_gate_sum_missing)) x -= later(1);
        if (name == "dg" && is(Edit::backward_gate_sum_of_chunk)) x -= later(C - in_chunk);
        if (name == "dlevel_scales" && is(Edit::backward_levels_shifted))
          x = flat % tensor.shape[3] == 0 ? 0 : right[i - 1];
      }
    for (double& x : tensor.data) x = round_to(gradient_format(contract_, name), x);
    before = tensor.data;
  }

  void finish_state(Tensor& tensor, const std::vector<double>& right) const {
    if (is(Edit::backward_state_gradient_missing)) std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
    if (!is(Edit::backward_state_gradient_transposed)) return;
    const Index columns = tensor.shape.back(), rows = tensor.shape[tensor.shape.size() - 2];
    for (Index i = 0; i < static_cast<Index>(right.size()); ++i) {
      const Index block = i / (rows * columns) * rows * columns, a = (i - block) / columns, b = i % columns;
      tensor.data[static_cast<std::size_t>(block + b * rows + a)] = right[static_cast<std::size_t>(i)];
    }
  }

  const Production& kernel_;
  const Problem& given_;
  const Problem problem_;
  const Contract contract_;
  Memory& memory_;
  Tensors gradients_;
};

}  // namespace

bool computes_gradients(Edit edit) {
  if (edit == Edit::none) return true;
  return std::ranges::any_of(edits(),
                             [&](const EditInfo& info) { return info.edit == edit && info.family == 12; });
}

Tensors production_gradients(const Production& kernel, const Problem& problem, Memory& memory) {
  return Backward(kernel, problem, memory).run();
}

}  // namespace attest
