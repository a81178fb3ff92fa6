// The production kernel at work on one call: memory, tiles, arithmetic and the loop over chunks here, the algebra of one
// chunk in production_hla.cpp and production_delta.cpp. Not a public interface.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "gpu_checks/mutants/production.hpp"
#include "reference/forms/batch.hpp"

namespace attest {

inline constexpr Index C = production_chunk;  // tokens a chunk
using Tile = Matrix<float>;

inline float to_bf16(float x) { return round_float<bf16>(x); }

// Flat memory of a field, with a guard zone behind it that holds what memory happens to hold.
struct Field {
  std::vector<float> data;
  Index batch = 1, tokens = 0, heads = 1, width = 1;

  float at(Index offset) const {
    const auto size = static_cast<Index>(data.size());
    return size == 0 ? 0 : data[static_cast<std::size_t>(((offset % size) + size) % size)];
  }
};

inline Field field_of(const Problem& problem, const char* name) {
  Field field;
  const Tensor* tensor = problem.field(name);
  if (!tensor) return field;
  field.batch = tensor->shape[0], field.tokens = tensor->shape[1], field.heads = tensor->shape[2];
  field.width = tensor->shape.size() == 4 ? tensor->shape[3] : 1;
  field.data.assign(tensor->data.begin(), tensor->data.end());
  const bool gate = std::string_view(name) == "g";
  for (Index i = 0; i < C * field.heads * field.width; ++i) field.data.push_back(gate ? -0.25f : 0.5f);
  return field;
}

struct Chunk {
  Index first = 0, size = 0;  // token of the sequence, live rows
  Tile q, k, v;               // (C, ...), dead rows are zero
  Tile weights;               // (C+1, C+1) products of the gates between, row and column 0 for the start
  Tile squared, cubed;        // the same of gamma^2 and gamma^3
  std::vector<float> beta;    // (C)
  Tile lambda;                // (C, L)
};

class ProductionRun {
 public:
  ProductionRun(const Production& kernel, const Problem& problem, Memory& memory)
      : kernel_(kernel),
        d_(kernel.op->declaration()),
        problem_(problem),
        memory_(memory),
        edit_(kernel.edit) {
    q_ = field_of(problem, "q"), k_ = field_of(problem, "k"), v_ = field_of(problem, "v"),
    g_ = field_of(problem, "g");
    beta_ = field_of(problem, "beta"), scales_ = field_of(problem, "level_scales");
    key_dim_ = problem.key_dim, value_dim_ = problem.value_dim;
    columns_ = value_dim_ + (problem.options.normalize ? 1 : 0);
    scale_ = problem.options.scale ? static_cast<float>(nearest_double(*problem.options.scale)) : 1;
    ridge_ = static_cast<float>(nearest_double(problem.options.ridge));
    if (is(Edit::scale_ignored)) scale_ = 1;
    if (is(Edit::round_inputs_bf16))
      for (Field* f : {&q_, &k_, &v_})
        std::transform(f->data.begin(), f->data.end(), f->data.begin(), to_bf16);
    if (is(Edit::nan_input_to_zero))
      for (Field* f : {&q_, &k_, &v_})
        for (float& x : f->data) x = std::isnan(x) ? 0 : x;
  }

  Tensors run();

 private:
  bool is(Edit edit) const { return edit_ == edit; }
  bool packed() const { return !problem_.cu_seqlens.empty(); }

  void allocate() {
    for (const auto& [name, shape] : output_shapes(problem_, d_)) {
      Tensor& tensor = outputs_[name];
      tensor.shape = shape;
      const auto count = static_cast<std::size_t>(element_count(shape));
      std::vector<double>& before = memory_.scratch[name];  // whatever the allocator hands out again
      tensor.data = before;
      tensor.data.resize(count, 0.75);
    }
  }

  // --- memory ------------------------------------------------------------------------------------------------
  Index group(const Field& field, Index head) const {
    if (is(Edit::address_head_modulo)) return head % field.heads;
    return head / (problem_.heads / field.heads);
  }
  float load(const Field& field, const Slot& slot, Index t, Index column,
             std::optional<Index> head = {}) const {
    Index token = slot.first + t, batch = slot.batch;
    const Index h = head ? *head : group(field, slot.head);
    if (is(Edit::width_token_16)) token &= 0xffff;
    if (is(Edit::address_batch_zero) && &field == &k_) batch = 0;
    Index row = (batch * field.tokens + token) * field.heads + h;
    if (is(Edit::address_heads_first) && &field == &v_)
      row = (batch * field.heads + h) * field.tokens + token;
    if (is(Edit::width_offset_16)) return field.at((row * field.width + column) & 0xffff);
    if (is(Edit::address_value_stride) && &field == &v_) return field.at(row * key_dim_ + column);
    return field.at(row * field.width + column);
  }

  // --- a chunk's tiles -----------------------------------------------------------------------------------------
  Chunk load_chunk(const Slot& slot, Index first, Index size) {
    Chunk c{first,
            size,
            Tile(C, key_dim_),
            Tile(C, key_dim_),
            Tile(C, columns_),
            {},
            {},
            {},
            std::vector<float>(C, 0),
            {}};
    const Index width_k = is(Edit::address_odd_lane) ? key_dim_ / 2 * 2 + (key_dim_ == 1 ? 1 : 0) : key_dim_;
    const bool reads_on = is(Edit::tail_state_dead_rows) || (is(Edit::packed_tail_reads_on) && packed());
    for (Index t = 0; t < C; ++t) {
      const bool live = t < size;
      for (Index a = 0; a < key_dim_; ++a) {
        if (live && a < width_k) c.q(t, a) = load(q_, slot, first + t, a) * scale_;
        if (live || reads_on) c.k(t, a) = load(k_, slot, first + t, a);
      }
      for (Index b = 0; b < value_dim_; ++b)
        if (live || reads_on) {
          Index column = b;
          if (is(Edit::address_tile_offset)) column %= production_tile;
          if (is(Edit::address_last_column) && value_dim_ > 1 && b == value_dim_ - 1 && value_dim_ % 2)
            column = b - 1;
          std::optional<Index> head;
          if (is(Edit::address_value_group)) head = std::min(group(k_, slot.head), v_.heads - 1);
          c.v(t, b) = load(v_, slot, first + t, column, head);
        }
      if (columns_ > value_dim_) c.v(t, value_dim_) = live ? 1 : 0;
      if (d_.beta && (live || is(Edit::tail_beta_dead_rows) || reads_on))
        c.beta[static_cast<std::size_t>(t)] =
            load(beta_, slot, first + t, 0, is(Edit::address_beta_head_zero) ? 0 : slot.head);
    }
    if (kernel_.bf16 && scale_ != 1) c.q = rounded(c.q);
    if (d_.level_scales) load_scales(slot, c);
    load_gates(slot, c);
    return c;
  }

  void load_scales(const Slot& slot, Chunk& c) {
    c.lambda = Tile(C, scales_.width);
    for (Index t = 0; t < c.size; ++t)
      for (Index l = 0; l < scales_.width; ++l) {
        Index row = c.first + t;
        if (is(Edit::tail_scales_past_end) && c.size < C && t == c.size - 1) row += 1;
        c.lambda(t, l) = load(scales_, slot, row, l, slot.head);
      }
  }

  float gamma_of(Index head) const {
    if (const Tensor* decay = problem_.field("decay"))
      return static_cast<float>(
          decay->data[static_cast<std::size_t>(is(Edit::address_decay_head_zero) ? 0 : head)]);
    return problem_.options.decay ? static_cast<float>(nearest_double(*problem_.options.decay)) : 1;
  }

  float gate_weight(float later, float earlier, float middle, float last) const {
    if (is(Edit::exp_middle_anchor)) return std::exp(later - middle) * std::exp(middle - earlier);
    if (is(Edit::exp_start_anchor)) return std::exp(later) * std::exp(-earlier);
    if (is(Edit::exp_base_two)) return std::exp2(later - earlier);
    float difference = later - earlier;
    if (is(Edit::round_global_gate_sum)) difference = (later + last) - (earlier + last);
    if (is(Edit::exp_difference_clamped)) difference = std::max(difference, -20.0f);
    if (is(Edit::exp_linear_gate) || (is(Edit::packed_linear_gate) && packed()))
      return std::max(0.0f, 1 + difference);
    if (is(Edit::exp_fast)) return to_bf16(static_cast<float>(std::exp(static_cast<double>(difference))));
    const auto weight = static_cast<float>(std::exp(static_cast<double>(difference)));
    return is(Edit::exp_small_is_zero) && weight < 1e-3f ? 0 : weight;
  }

  void load_gates(const Slot& slot, Chunk& c) {
    c.weights = Tile(C + 1, C + 1);
    if (!d_.gates) {
      constant_decay(gamma_of(slot.head), c);
      return;
    }
    std::vector<float> sum(C + 1, 0);
    std::vector<Index> closed(C + 1, 0);
    for (Index t = 0; t < C; ++t) {
      float g = t < c.size || is(Edit::tail_gate_dead_rows)
                    ? load(g_, slot, c.first + t, 0, is(Edit::address_gate_head_zero) ? 0 : slot.head)
                    : 0;
      if (is(Edit::exp_gate_clamped)) g = std::max(g, -5.0f);
      const auto at = static_cast<std::size_t>(t);
      closed[at + 1] = closed[at] + (std::isinf(g) ? 1 : 0);
      sum[at + 1] = std::isinf(g) ? sum[at] : sum[at] + g;
      if (is(Edit::round_gate_sum_bf16)) sum[at + 1] = to_bf16(sum[at + 1]);
    }
    const float offset = gate_before_;  // the sum over the chunks before, for kernels that keep a global one
    gate_before_ += sum[static_cast<std::size_t>(c.size)];
    for (Index t = 0; t <= C; ++t)
      for (Index s = 0; s <= C; ++s) {
        const auto to = static_cast<std::size_t>(t), from = static_cast<std::size_t>(s);
        if (s > t && !is(Edit::exp_before_mask)) continue;
        if (s == t)
          c.weights(t, s) = 1;
        else if (closed[to] == closed[from])
          c.weights(t, s) = gate_weight(sum[to], sum[from], sum[C / 2], offset);
        // exp first, mask afterwards, by multiplication
        if (s > t) c.weights(t, s) *= 0;
      }
    if (is(Edit::exp_before_mask))
      for (Index t = 0; t <= C; ++t)
        for (Index s = t + 1; s <= C; ++s) c.weights(t, t) += c.weights(t, s);
  }

  void constant_decay(float gamma, Chunk& c) {
    if (is(Edit::decay_clamped)) gamma = std::max(gamma, 1.0f / 64);
    if (is(Edit::decay_near_one) && gamma > 1 - 0x1p-5f) gamma = 1;
    c.squared = c.cubed = c.weights;
    const float cube = gamma * gamma * gamma;
    for (auto [target, base] : {std::pair{&c.weights, gamma}, {&c.squared, gamma * gamma}, {&c.cubed, cube}})
      for (Index s = 0; s <= C; ++s) {
        (*target)(s, s) = 1;
        for (Index t = s + 1; t <= C; ++t) {
          const auto distance = static_cast<float>(t - s);
          float weight = (*target)(t - 1, s) * base;
          if (is(Edit::decay_log_bf16)) weight = std::exp(distance * to_bf16(std::log(base)));
          if (is(Edit::decay_by_inverse))
            weight = std::pow(base, static_cast<float>(t)) * std::pow(base, -static_cast<float>(s));
          if (is(Edit::decay_small_is_zero) && weight < 1e-3f) weight = 0;
          (*target)(t, s) = weight;
        }
      }
  }

  // --- arithmetic ------------------------------------------------------------------------------------------------
  Tile rounded(Tile x) const {
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = to_bf16(x.data()[i]);
    return x;
  }
  Tile operand(Tile x) const {
    if (is(Edit::round_operand_fp16))
      for (Index i = 0; i < x.size(); ++i) x.data()[i] = round_float<fp16>(x.data()[i]);
    return kernel_.bf16 ? rounded(std::move(x)) : x;
  }
  Tile multiply(const Tile& a, const Tile& b) const {
    if (!is(Edit::round_accumulate_bf16) && !is(Edit::race_order)) return product(a, b);
    Tile result(a.rows(), b.cols());
    for (Index i = 0; i < a.rows(); ++i)
      for (Index step = 0; step < a.cols(); ++step) {
        const Index k = is(Edit::race_order) ? (step + memory_.calls) % a.cols() : step;
        for (Index j = 0; j < b.cols(); ++j) {
          result(i, j) += a(i, k) * b(k, j);
          if (is(Edit::round_accumulate_bf16)) result(i, j) = to_bf16(result(i, j));
        }
      }
    return result;
  }
  Tile scores(const Tile& q, const Tile& k) const {
    if (!is(Edit::round_scores_tf32)) return multiply(q, k.transpose());
    Tile a = q, b = k.transpose();
    for (Tile* x : {&a, &b})
      for (Index i = 0; i < x->size(); ++i) x->data()[i] = round_tf32(x->data()[i]);
    return product(a, b);
  }
  static void scale_rows(Tile& x, const Tile& weights, Index shift) {
    for (Index t = 0; t < C; ++t) x.row(t) *= weights(t + shift, 0);
  }

  // q_t read over the tokens of the chunk up to t (t - 1: exclusive) and over the state before it.
  Tile read(const Tile& q, const Tile& k, const Tile& v, const Tile& weights, const Tile& state,
            bool exclusive = false, bool strict = false, bool masked = true, bool carried_too = true) const {
    const Index shift = exclusive ? 1 : 0;
    Tile local = scores(q, k);
    for (Index t = 0; t < C; ++t)
      for (Index s = 0; s < C; ++s) {
        const bool seen = strict ? s < t : s + shift <= t;
        if (!seen && masked)
          local(t, s) = 0;
        else
          local(t, s) *= s + shift <= t ? weights(t + 1 - shift, s + 1) : 1;
      }
    Tile o = multiply(operand(local), v);
    if (!carried_too) return o;
    Tile carried = multiply(q, operand(state));
    scale_rows(carried, weights, 1 - shift);
    return o + carried;
  }
  // state <- decay to the end of the chunk + sum of the chunk's outer products, as they are at its end.
  void advance(Tile& state, const Tile& k, const Tile& v, const Tile& weights, Index size) const {
    const Index end = is(Edit::tail_decay_full_chunk) ? C : size;
    Tile faded = k;
    for (Index t = 0; t < C; ++t) faded.row(t) *= t < end ? weights(end, t + 1) : 1;
    const Tile gained = multiply(operand(faded).transpose(), v);
    const float whole = is(Edit::state_undecayed) ? 1 : weights(end, 0);
    state = whole * state + gained;
    if (is(Edit::round_state_bf16)) state = rounded(state);
  }

  // --- the algebra of a chunk: o of its rows (C, columns), the state advanced -----------------------------------
  Tile chunk_of_hla2(const Chunk& c);
  Tile chunk_of_ahla(const Chunk& c);
  Tile chunk_of_hla3(const Chunk& c);
  Tile chunk_of_delta(const Chunk& c);
  Tile chunk_of_levels(const Chunk& c, bool delta);

  struct DeltaTiles {
    Tile scores, inverse, faded_keys, w, faded_queries;
  };
  DeltaTiles delta_tiles(const Chunk& c) const;
  Tile invert(const Tile& n) const;
  float level_scale(const Chunk& c, Index t, Index s) const;
  Index level_of(Index t, Index s) const;
  void append_blocks(const Chunk& c, const Tile& gain);
  Index end_of(const Chunk& c) const {
    return is(Edit::tail_decay_full_chunk) || is(Edit::tail_gate_dead_rows) ? C : c.size;
  }

  // --- one head of one sequence ------------------------------------------------------------------------------
  void one_head(const Slot& slot, Index live);
  Tile compute(const Chunk& c);
  Index next_size(Index first, Index remaining) const;
  void load_state(const Slot& slot, Index live);
  void save_state(const Slot& slot, Index live);
  void store(const Slot& slot, Index first, Index size, const Tile& o);
  double& output_at(const Slot& slot, Index t, Index column);

  const Production& kernel_;
  const Declaration& d_;
  const Problem& problem_;
  Memory& memory_;
  Edit edit_;
  Field q_, k_, v_, g_, beta_, scales_;
  Index key_dim_, value_dim_, columns_;
  float scale_, ridge_, gamma_ = 1, gate_before_ = 0;
  std::vector<Tile> state_;  // the moments in the operator's order; log-linear: the levels
  Tile previous_;            // the first moment one chunk ago
  Index position_ = 0;       // tokens consumed, for the levels
  Tensors outputs_;
  std::map<Index, std::vector<Tile>> carried_;  // by head, across packed sequences
};

}  // namespace attest
