#include "gpu_checks/mutants/production.hpp"

#include <chrono>

#include "gpu_checks/mutants/mutants.hpp"
#include "gpu_checks/mutants/production_run.hpp"

namespace attest {

Tensors ProductionRun::run() {
  allocate();
  Index block = 0, live = 0;
  for (const Slot& slot : slots(problem_)) {
    if (is(Edit::width_grid_65535) && block++ >= 65535) break;
    if (slot.head == 0 && slot.last > slot.first) ++live;
    one_head(slot, live - 1);
  }
  if (is(Edit::first_head_copied) && problem_.heads > 2) {
    const Slot first{0, 0, 0, 0, problem_.tokens}, third{0, 0, 2, 0, problem_.tokens};
    for (Index t = 0; t < problem_.tokens; ++t)
      for (Index b = 0; b < value_dim_; ++b) output_at(third, t, b) = output_at(first, t, b);
  }
  for (const auto& [name, tensor] : outputs_) memory_.scratch[name] = tensor.data;
  return std::move(outputs_);
}

double& ProductionRun::output_at(const Slot& slot, Index t, Index column) {
  Index row = (slot.batch * problem_.tokens + slot.first + t) * problem_.heads + slot.head;
  return outputs_.at("o").data[static_cast<std::size_t>(row * value_dim_ + column)];
}

Tile ProductionRun::compute(const Chunk& c) {
  if (d_.name == "hla2") return chunk_of_hla2(c);
  if (d_.name == "ahla") return chunk_of_ahla(c);
  if (d_.name == "hla3") return chunk_of_hla3(c);
  if (d_.name == "gated_delta") return chunk_of_delta(c);
  return chunk_of_levels(c, d_.beta);
}

// Chunks of the log-linear operators are aligned to absolute positions.
Index ProductionRun::next_size(Index first, Index remaining) const {
  Index size = C;
  if (d_.level_scales)
    while (position_ % size != 0) size /= 2;
  const Index from = problem_.cu_seqlens.empty() ? 0 : first;
  if (is(Edit::packed_chunks_global) && packed()) size = C - from % C;
  return std::min(size, remaining);
}

void ProductionRun::one_head(const Slot& slot, Index live) {
  const Index n = slot.last - slot.first;
  gamma_ = d_.gates ? 1 : gamma_of(slot.head), gate_before_ = 0;
  load_state(slot, live);
  if (is(Edit::packed_empty_writes) && packed() && n == 0 && slot.first < problem_.tokens)
    for (Index b = 0; b < value_dim_; ++b)
      output_at({0, 0, slot.head, 0, 0}, std::max<Index>(slot.first - 1, 0), b) = 0;
  Index end = n;
  if (is(Edit::tail_chunk_dropped)) end = n / C * C;
  if (is(Edit::packed_ends_short) && packed() && slot.last < problem_.tokens) end = std::max<Index>(n - 1, 0);
  if (is(Edit::packed_last_dropped) && packed() && slot.last == problem_.tokens && slot.sequence > 0) end = 0;
  if (is(Edit::width_chunk_8)) end = std::min<Index>(end, 255 * C);
  std::vector<Tile> saved = state_;
  const std::vector<Tile> initial = state_;
  for (Index first = 0, chunk = 0; first < end; ++chunk) {
    const Index size = next_size(slot.first + first, end - first);
    Chunk c = load_chunk(slot, first, size);
    saved = state_;
    Tile o;
    if (is(Edit::race_stale_state) && chunk > 1 && !d_.level_scales) {
      std::vector<Tile> now = state_;
      state_[0] = previous_;
      o = compute(c);
      state_ = now;
      compute(c);
    } else {
      o = compute(c);
    }
    previous_ = saved.empty() ? Tile() : saved[0];
    if (is(Edit::split_tail_twice) && chunk == 2 && !d_.level_scales)
      state_[0] += state_[0] + Tile(-1.0f * saved[0]);
    if (is(Edit::split_tail_twice) && chunk == 2 && d_.level_scales) state_.back() += state_.back();
    if (is(Edit::state_every_chunk) && chunk > 0)
      for (std::size_t i = 0; i < std::min(state_.size(), initial.size()); ++i) state_[i] += initial[i];
    if (is(Edit::round_state_per_token))
      for (Tile& s : state_)
        for (Index i = 0; i < s.size(); ++i) s.data()[i] = round_float<fp16>(s.data()[i]);
    Index written = size;
    if (is(Edit::tail_last_row_dropped) && size < C) --written;
    if (is(Edit::tail_residue_one) && size == 1) written = 0;
    store(slot, first, written, o);
    first += size;
    position_ += size;
    if (is(Edit::packed_positions_global) && packed() && first == size) position_ += slot.first;
  }
  if (is(Edit::tail_state_without_partial) && n % C != 0) state_ = saved;
  if (is(Edit::tail_extra_chunk) && n > 0 && n % C == 0) {
    const Chunk c = load_chunk(slot, n, 0);
    for (Tile& s : state_) s *= d_.gates ? 0.75f : c.weights(C, 0) * 0.5f + 0.5f;
  }
  if (is(Edit::state_saved_early)) state_ = saved;
  save_state(slot, live);
}

void ProductionRun::load_state(const Slot& slot, Index live) {
  Index sequence = is(Edit::state_of_sequence_zero) ? 0 : slot.sequence,
        head = is(Edit::state_of_head_zero) ? 0 : slot.head;
  if (is(Edit::packed_states_compacted) && packed()) sequence = std::max<Index>(live, 0);
  position_ = d_.level_scales ? initial_positions(problem_)[static_cast<std::size_t>(slot.sequence)] : 0;
  if (is(Edit::width_position_half))
    position_ = static_cast<Index>(round_float<bf16>(static_cast<float>(position_)));
  if (is(Edit::packed_no_reset) && packed() && slot.sequence > 0 && memory_.calls >= 0 && !carried_.empty()) {
    if (const auto found = carried_.find(slot.head); found != carried_.end()) {
      state_ = found->second;
      return;
    }
  }
  state_.clear();
  std::size_t index = 0;
  for (const Moment& moment : d_.moments) {
    const Index columns = moment.value_columns ? columns_ : key_dim_,
                own = moment.value_columns ? value_dim_ : key_dim_;
    const Tensor* tensor = problem_.field("initial_state." + moment.name);
    const Tensor* last =
        carries_normaliser(problem_, moment) ? problem_.field("initial_state." + moment.normaliser) : nullptr;
    const Index levels = d_.level_scales && tensor ? tensor->shape[2] : 1;
    const bool dropped = is(Edit::state_ignored) ||
                         (is(Edit::state_second_not_restored) && index + 1 == d_.moments.size() && index > 0);
    for (Index level = 0; level < levels; ++level) {
      Tile& tile = state_.emplace_back(key_dim_, columns);
      if (!tensor || dropped) continue;
      Index block = sequence * problem_.heads + head;
      if (is(Edit::state_key_heads_stride)) block = sequence * k_.heads + head;
      if (is(Edit::width_state_16)) block = (block * key_dim_ * own & 0xffff) / (key_dim_ * own);
      block = block * levels + level;
      for (Index a = 0; a < key_dim_; ++a) {
        for (Index b = 0; b < own; ++b) {
          Index flat = is(Edit::state_transposed) ? block * key_dim_ * own + b * key_dim_ + a
                                                  : (block * key_dim_ + a) * own + b;
          tile(a, b) = static_cast<float>(tensor->data[static_cast<std::size_t>(flat) % tensor->data.size()]);
        }
        if (last)
          tile(a, own) = static_cast<float>(last->data[static_cast<std::size_t>(block * key_dim_ + a)]);
      }
      if (is(Edit::state_gate_twice)) tile *= d_.gates ? std::exp(load(g_, slot, 0, 0, slot.head)) : gamma_;
    }
    ++index;
  }
  if (is(Edit::state_position_ignored)) position_ = 0;
}

void ProductionRun::save_state(const Slot& slot, Index live) {
  if (is(Edit::packed_no_reset)) carried_[slot.head] = state_;
  if (is(Edit::state_not_saved_single) && slot.last - slot.first == 1) return;
  if (is(Edit::packed_empty_state) && packed() && slot.first == slot.last) return;
  Index sequence = slot.sequence, head = slot.head;
  if (is(Edit::packed_states_compacted) && packed()) sequence = std::max<Index>(live, 0);
  if (is(Edit::race_shared_slot)) head = head / 2 * 2;
  Solution<float> solution{Tile(0, columns_), {}};
  std::size_t at = 0;
  for (const Moment& moment : d_.moments) {
    auto& levels = solution.final.moments[moment.name];
    if (d_.level_scales) {
      const auto room = static_cast<std::size_t>(final_levels(problem_, d_));
      for (std::size_t l = 0; l < room; ++l)
        levels.push_back(l < state_.size() ? state_[l] : Tile(key_dim_, columns_));
    } else {
      if (is(Edit::state_second_not_saved) && at == 1) state_[at] *= 0;
      levels.push_back(state_[at++]);
    }
  }
  visit_outputs(problem_, d_, {slot.batch, sequence, head, slot.first, slot.first}, solution,
                final_levels(problem_, d_), [&](const std::string& name, Index flat, float value) {
                  outputs_.at(name).data[static_cast<std::size_t>(flat)] = static_cast<double>(value);
                });
}

void ProductionRun::store(const Slot& slot, Index first, Index size, const Tile& o) {
  const auto epsilon = static_cast<float>(nearest_double(problem_.options.epsilon));
  for (Index t = 0; t < size; ++t) {
    const Index token = first + t;
    if (is(Edit::rows_unwritten) && token == slot.last - slot.first - 1 && token % 2 == 0 && token > 0)
      continue;
    if (is(Edit::race_lost_row) && memory_.calls % 3 == 2 && token == 3) continue;
    if (is(Edit::width_split) && token >= 65536) continue;
    if (is(Edit::later_rows_cheap) && token >= 2 * C && token % C == C / 2) continue;
    for (Index b = 0; b < value_dim_; ++b) {
      if (is(Edit::tile_skipped) && b / production_tile == 1) continue;
      float x = o(t, b);
      if (columns_ > value_dim_) {
        float below = o(t, value_dim_) + epsilon;
        if (is(Edit::round_epsilon_twice)) below += epsilon;
        if (is(Edit::epsilon_dropped)) below -= epsilon;
        x /= below;
      }
      if (is(Edit::scale_read_only) && scale_ != 0) x /= scale_;
      if (is(Edit::narrow_path_wrong) && key_dim_ == 1 && token > C) x *= 2;
      if (is(Edit::nan_to_zero) && std::isnan(x)) x = 0;
      if (is(Edit::zero_small_outputs) && std::abs(x) < 1e-4f) x = 0;
      if (is(Edit::clamp_outputs)) x = std::clamp(x, -1000.0f, 1000.0f);
      if (kernel_.bf16) {
        if (is(Edit::round_output_down))
          x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u);
        else
          x = to_bf16(x);
      } else if (is(Edit::round_output_down)) {
        x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xfffffff0u);
      }
      double& target = output_at(slot, token, b);
      if (is(Edit::split_overlap) && b == production_tile && first > 0)
        target = 2 * static_cast<double>(x);
      else
        target = static_cast<double>(x);
    }
    if (is(Edit::write_before) && t == 0 && token > 0)
      for (Index b = 0; b < value_dim_; ++b) output_at(slot, token - 1, b) *= 0.5;
  }
}

namespace {

std::string shape_key(const Problem& problem) {
  std::string key;
  for (const auto& [name, tensor] : problem.fields) {
    key += name;
    for (const Index size : tensor.shape) key += ' ' + std::to_string(size);
  }
  for (const Index end : problem.cu_seqlens) key += ',' + std::to_string(end);
  return key;
}

std::string content_key(const Problem& problem) {
  std::string key = shape_key(problem);
  for (const char* name : {"q", "k", "v"}) {
    const std::vector<double>& data = problem.fields.at(name).data;
    key.append(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(double));
  }
  return key;
}

// The mistakes around the kernel: results kept from one call to another, inputs written to. Which calls share an address is
// the allocator's choice, as it is for a real kernel of this fault: beside the call that is given the same buffers on
// purpose (the check repetition), others of the battery reject cache_by_address in one run and not in the next.
std::optional<std::string> cache_key(Edit edit, const Problem& problem) {
  if (edit == Edit::cache_by_shape) return shape_key(problem);
  if (edit == Edit::cache_without_decay) return content_key(problem);
  if (edit == Edit::cache_by_address)
    return std::to_string(reinterpret_cast<std::uintptr_t>(problem.fields.at("q").data.data())) +
           shape_key(problem);
  if (edit == Edit::memo_of_first_call)
    return std::to_string(problem.tokens) + '/' + shape_key(problem).substr(0, 1);
  return std::nullopt;
}

bool takes(const Problem& problem) { return !problem.field("alpha"); }

}  // namespace

KernelResult run_production(const Production& kernel, const Problem& problem, Memory& memory) {
  if (!takes(problem)) return {KernelStatus::unsupported, "linear gates (alpha) are not taken", {}, 0};
  const auto start = std::chrono::steady_clock::now();
  const auto key = cache_key(kernel.edit, problem);
  const auto same_shape = [&](const KernelResult& kept) {
    return kept.outputs.at("o").shape ==
           std::vector<Index>{problem.batch, problem.tokens, problem.heads, problem.value_dim};
  };
  if (key)
    if (const auto found = memory.cache.find(*key); found != memory.cache.end() && same_shape(found->second))
      return found->second;
  KernelResult result;
  ++memory.calls;
  result.outputs = ProductionRun(kernel, problem, memory).run();
  if (problem.field("do") && computes_gradients(kernel.edit))
    result.outputs.merge(production_gradients(kernel, problem, memory));
  if (kernel.edit == Edit::tuning_mutates &&
      memory.cache.emplace(shape_key(problem), KernelResult()).second) {
    // The candidates of a tuning run each carried the same state on.
    for (auto& [name, tensor] : result.outputs)
      if (name != "o")
        for (double& x : tensor.data) x *= 2;
  }
  if (kernel.edit == Edit::inputs_changed)
    for (double& x : const_cast<Problem&>(problem).fields.at("q").data)
      x = static_cast<double>(static_cast<float>(x) * 1.5f);
  result.nanoseconds = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  if (key) memory.cache[*key] = result;
  return result;
}

Contract production_contract(bool bf16) {
  return bf16 ? parse_contract("input=bf16 product=bf16 intermediate=bf16 output=bf16") : Contract();
}

Kernel production_kernel(const Operator& op, Edit edit, bool bf16) {
  const Declaration& declaration = op.declaration();
  Kernel kernel;
  kernel.name = "mutant." + declaration.name + '.' + std::string(edit_name(edit)) + (bf16 ? ".bf16" : "");
  kernel.door = "mutant", kernel.op = declaration.name, kernel.variant = declaration.variant;
  kernel.how = {Form::chunk, production_chunk, 0};
  kernel.form = form_text(declaration, kernel.how);
  kernel.contract = production_contract(bf16);
  kernel.features = "varlen initial_state final_state grouped deterministic batch_invariant";
  if (computes_gradients(edit)) kernel.features += " backward";
  kernel.run = [what = Production{&op, edit, bf16}, memory = std::make_shared<Memory>()](
                   const Problem& problem) { return run_production(what, problem, *memory); };
  return kernel;
}

}  // namespace attest
