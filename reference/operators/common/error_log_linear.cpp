// Error model of the chunk form of the log-linear operators with scalar transitions (log_linear_operator.hpp). No walk back
// is needed: errors of the blocks are carried forward with them.
#include "reference/numeric/parallel.hpp"
#include "reference/operators/common/error_blocks.hpp"
#include "reference/operators/common/error_forms.hpp"

namespace attest {
using namespace log_linear;
namespace {

// The errors that travel with a block of a scalar transition, after the state itself.
enum Travelling : std::size_t { state_part, keys_part, carry_part, arithmetic_part, parts_count };

struct Shares {
  Array weights, state, first_state, keys, carry, arithmetic;
};

// What a chunk reads of a block before it: rows scaled by `scale`, lambda_t^level times the decay, of relative error `error`.
// Nothing is read of errors whose unit is 0. `sum`: gamma of all terms of a row.
void read_block(const Units& units, Norm p, const Array& q, const Block& block, const Eigen::VectorXd& scale,
                const Eigen::VectorXd& error, double sum, bool first_state, Index first, Array& o,
                Shares& shares) {
  const auto rows = [&](Array& all) { return all.middleRows(first, q.rows()); };
  const Array q_size = size_of(p, Array(scale.asDiagonal() * q));
  if (units.operand > 0 || units.carried_state > 0)
    rows(first_state ? shares.first_state : shares.state) += q_size * size_of(p, block.parts[state_part]);
  if (units.operand > 0) rows(shares.keys) += q_size * block.parts[keys_part];
  if (units.carry > 0) rows(shares.carry) += q_size * block.parts[carry_part];
  if (p != Norm::absolute) return;
  const Array read = scale.asDiagonal() * (q * block.parts[state_part]),
              wrong = block.parts[arithmetic_part] + (sum + units.input) * block.parts[state_part].cwiseAbs();
  rows(o) += read;
  rows(shares.arithmetic) += q_size * wrong + error.asDiagonal() * read.cwiseAbs();
}

// One pass over the chunks in one norm. That of absolute values has the arithmetic, the values and what may overflow.
Shares scalar_pass(const FormError& form, Norm p, Array& o, ErrorSum& sum) {
  const bool absolute = p == Norm::absolute;
  const Head<double>& head = form.head;
  const Units& units = form.units;
  const Index n = head.tokens(), d = head.q.cols(), columns = head.v.cols();
  const Array zero = Array::Zero(n, columns), q = to_array(head.q), k = to_array(head.k),
              v = to_array(head.v);
  const double u = units.step, product = units.gamma(d) + 2 * units.input;
  Shares shares{zero, zero, zero, zero, zero, zero};
  o = zero;
  std::vector<Block> cover = initial_blocks(head, parts_count);
  Arithmetic<double> exact;
  for (Index first = 0, size; first < n; first += size) {
    const Index position = head.initial.position + first;
    size = aligned_chunk(position, form.width, n - first);
    const Array decay = to_array(exact.decay(declared_gates(form), first, first + size));
    const Array error = gate_error(units, declared_gates(form), first, first + size);
    if (absolute) sum.gates(error);
    const Array v_c = v.middleRows(first, size),
                scores = q.middleRows(first, size) * k.middleRows(first, size).transpose();
    const Array magnitude =
        q.middleRows(first, size).cwiseAbs() * k.middleRows(first, size).cwiseAbs().transpose();
    Array weights = Array::Zero(size, size), weights_error = weights, keys = k.middleRows(first, size),
          keys_error = keys.cwiseAbs();
    for (Index t = 0; t < size; ++t) {
      for (Index s = 0; s <= t; ++s) {
        const double scale = decay(t + 1, s + 1) * level_scale(head, first + t, position + s);
        weights(t, s) = scale * scores(t, s);
        weights_error(t, s) = std::abs(weights(t, s)) * (error(t + 1, s + 1) + 2 * u) +
                              std::abs(scale) * product * magnitude(t, s);
      }
      keys.row(t) *= decay(size, t + 1);
      keys_error.row(t) *= decay(size, t + 1) * (error(size, t + 1) + (decay(size, t + 1) == 1 ? 0 : u));
    }
    if (absolute) sum.range("weights", units.operand_format(), weights);
    o.middleRows(first, size) = weights * v_c;
    shares.weights.middleRows(first, size) = size_of(p, weights) * size_of(p, v_c);
    // A row is one sum, in any order, of what its chunk and the blocks before it give.
    const double row_sum = units.gamma(size + static_cast<Index>(cover.size()) * d);
    if (absolute)
      shares.arithmetic.middleRows(first, size) =
          weights_error * v_c.cwiseAbs() + (row_sum + units.input) * (weights.cwiseAbs() * v_c.cwiseAbs());
    for (Block& block : cover) {
      if (absolute) sum.range("state", units.operand_format(), block.state());
      Eigen::VectorXd scale(size);
      for (Index t = 0; t < size; ++t) scale(t) = level_scale(head, first + t, block.start) * decay(t + 1, 0);
      read_block(units, p, q.middleRows(first, size), block, scale,
                 (error.col(0).tail(size).array() + 2 * u).matrix(), row_sum, first == 0, first, o, shares);
    }
    const double through = decay(size, 0), through_error = error(size, 0) + (through == 1 ? 0 : u);
    for (Block& block : cover) {
      block.changed = block.changed || through != 1 || declared_gates(form).log_gate;
      block.state() *= through;
      block.parts[keys_part] *= size_of(p, through), block.parts[carry_part] *= size_of(p, through);
      block.parts[arithmetic_part] =
          Array(through * block.parts[arithmetic_part] + through_error * block.state().cwiseAbs());
    }
    for (const auto& [offset, count] : pieces(position, size)) {
      const Array k_p = keys.middleRows(offset, count), v_p = v_c.middleRows(offset, count);
      Block block{position + offset, log2_of(count), std::vector<Array>(parts_count, Array::Zero(d, columns)),
                  true};
      block.state() = k_p.transpose() * v_p;
      block.parts[keys_part] = size_of(p, k_p).transpose() * size_of(p, v_p);
      block.parts[arithmetic_part] =
          keys_error.middleRows(offset, count).transpose() * v_p.cwiseAbs() +
          (units.gamma(count) + units.input) * (k_p.cwiseAbs().transpose() * v_p.cwiseAbs());
      cover.push_back(std::move(block));
    }
    merge(cover, u, arithmetic_part);
    for (Block& block : cover) {
      if (absolute) sum.range("carry", units.contract.state, block.state());
      if (block.changed) block.parts[carry_part] += size_of(p, block.state());
      block.changed = false;
    }
  }
  return shares;
}

}  // namespace

std::optional<ErrorModel> log_linear_chunk_error(const FormError& form) {
  const Units& units = form.units;
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), form.head.v.cols());
  Array o, unused;
  Shares a, s;
  for_each_parallel(2, form.threads, [&](Index i) {
    if (i == 0) a = scalar_pass(form, Norm::absolute, o, sum);
    if (i == 1) s = scalar_pass(form, Norm::square, unused, sum);
  });
  const auto rounded = [&](const char* label, double unit, const Array& absolute, const Array& square) {
    sum.rounded(label, unit, rows.pick(absolute), rows.pick(square));
  };
  rounded("weights", units.operand, a.weights, s.weights);
  rounded("state", units.operand, a.first_state, s.first_state);
  rounded("state", units.carried_state, a.state, s.state);
  rounded("keys", units.operand, a.keys, s.keys);
  rounded("carry", units.carry, a.carry, s.carry);
  sum.arithmetic(rows.pick(a.arithmetic));
  return finish_output(form, sum, o);
}

}  // namespace attest
