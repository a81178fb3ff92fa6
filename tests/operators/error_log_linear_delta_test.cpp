// The error model of the chunk form of the log-linear delta rules against the same sums taken plainly: output by output,
// chunk by chunk back from it, block by block, one norm at a time. The control: a scale of any single level of one output,
// changed by a millionth, is told apart.
#include <gtest/gtest.h>

#include <map>

#include "reference/forms/operator.hpp"
#include "reference/operators/common/error_blocks.hpp"
#include "reference/operators/common/error_delta.hpp"
#include "tests/operators/error_cases.hpp"

namespace attest::log_linear_delta_errors {
using namespace log_linear;
namespace {

using namespace testing_errors;

struct DeltaWalked {
  DeltaStages c;
  std::vector<Block> before, after;
  Array weights_unscaled;  // P T
  Array queries;           // diag(g) Q - P W
  Array gain;              // K'^T T
};

std::vector<DeltaWalked> walk(const FormError& form) {
  const Head<double>& head = form.head;
  std::vector<DeltaWalked> chunks;
  std::vector<Block> cover = initial_blocks(head, 1);
  for (Index first = 0, size; first < head.tokens(); first += size) {
    const Index position = head.initial.position + first;
    size = aligned_chunk(position, form.width, head.tokens() - first);
    DeltaStages c(form, first, size);
    Array weights = c.scores * c.ut, queries = c.faded_queries() - c.scores * c.w,
          gain = c.keys.transpose() * c.ut;
    std::vector<Block> before = cover;
    for (Block& block : cover)
      block.state() = Array(c.through() * block.state() - c.keys.transpose() * (c.w * block.state()));
    for (const auto& [offset, count] : pieces(position, size))
      cover.push_back({position + offset,
                       log2_of(count),
                       {gain.middleCols(offset, count) * c.v.middleRows(offset, count)},
                       true});
    merge(cover, 0, 0);
    chunks.push_back(
        {std::move(c), std::move(before), cover, std::move(weights), std::move(queries), std::move(gain)});
  }
  return chunks;
}

using Labels = std::map<std::string, Array>;

class DeltaPass {
 public:
  DeltaPass(const FormError& form, Norm p)
      : form_(form),
        units_(form.units),
        p_(p),
        n_(form.head.tokens()),
        columns_(form.head.v.cols()),
        arithmetic(Array::Zero(n_, columns_)),
        o(Array::Zero(n_, columns_)) {}

  void run(const std::vector<DeltaWalked>& chunks, const RowSet& rows) {
    for (std::size_t own = 0; own < chunks.size(); ++own) {
      const DeltaWalked& w = chunks[own];
      for (Index i = rows.before(w.c.first); i < rows.before(w.c.last()); ++i) {
        Array y = own_chunk(w, rows.token(i) - w.c.first);
        for (std::size_t b = own; b-- > 0;) y = earlier_chunk(chunks[b], rows.token(i), y);
      }
    }
  }
  Labels labels;

 private:
  const FormError& form_;
  const Units& units_;
  Norm p_;
  Index n_, columns_;

 public:
  Array arithmetic, o;

 private:
  Array sized(const Array& x) const { return size_of(p_, x); }
  void add(const char* label, Index t, const Array& row) {
    labels.try_emplace(label, Array::Zero(n_, columns_)).first->second.row(t) += row;
  }
  // sum of lambda_t^level(block) X_block, and of the sizes; `source` gives X.
  struct Read {
    Array value, sizes, absolute;
    double blocks = 0;
  };
  Read read(const std::vector<Block>& cover, Index t) const {
    Read result;
    result.value = result.sizes = result.absolute = Array::Zero(form_.head.q.cols(), columns_);
    for (const Block& block : cover) {
      const double lambda = level_scale(form_.head, t, block.start);
      result.value += lambda * block.parts[0];
      result.sizes += size_of(p_, lambda) * sized(block.parts[0]);
      result.absolute += std::abs(lambda) * block.parts[0].cwiseAbs();
      ++result.blocks;
    }
    return result;
  }
  // What own and earlier chunks have in common: errors of T, F, W, N^-1 seen through the row r on U.
  void inside(const DeltaWalked& w, Index t, const Array& r, const Array& residual, const Array& u,
              const Array& state) {
    const DeltaStages& c = w.c;
    const Array through_inverse = r * c.inverse, through_ut = r * c.ut;
    add("ut", t, sized(r) * sized(c.ut) * sized(residual));
    add("start_keys", t, sized(through_ut) * sized(c.start_keys) * sized(state));
    add("w", t, sized(r) * sized(c.w) * sized(state));
    if (p_ != Norm::absolute) return;
    const Array size = r.cwiseAbs();
    arithmetic.row(t) += size * c.ut_error * residual.cwiseAbs() +
                         through_inverse.cwiseAbs() * c.n_error * u.cwiseAbs() +
                         (through_ut.cwiseAbs() * c.start_keys_error + size * c.w_error) * state.cwiseAbs();
  }
  // Returns the row on the states before the chunk.
  Array own_chunk(const DeltaWalked& w, Index local) {
    const DeltaStages& c = w.c;
    const Index t = c.first + local, base = form_.head.initial.position + c.first;
    Array lambda = Array::Zero(c.size, 1);
    for (Index i = 0; i <= local; ++i) lambda(i, 0) = level_scale(form_.head, t, base + i);
    const Read before = read(w.before, t);
    const Array scaled_v = lambda.col(0).asDiagonal() * c.v,
                residual = scaled_v - c.start_keys * before.value;
    const Array u = c.ut * residual, r = c.scores.row(local);
    const Array weights = w.weights_unscaled.row(local).cwiseProduct(lambda.col(0).transpose()),
                queries = w.queries.row(local);
    o.row(t) = weights * c.v + queries * before.value;
    add("scores", t, sized(r) * sized(u));
    add("weights", t, sized(weights) * sized(c.v));
    add("queries", t, sized(queries) * sized(before.value));
    add(c.first == 0 ? "state" : "state.carried", t, sized(queries) * before.sizes);
    inside(w, t, r, residual, u, before.value);
    if (p_ == Norm::absolute) {
      const Array size = r.cwiseAbs(), product = size * c.ut.cwiseAbs();
      const Array faded = c.faded_queries_error(units_).row(local) +
                          units_.gamma(c.size) * (size * c.w.cwiseAbs()) + units_.step * queries.cwiseAbs();
      const Array weights_error =
          (units_.gamma(c.size) * product + units_.step * w.weights_unscaled.row(local).cwiseAbs())
              .cwiseProduct(lambda.col(0).transpose().cwiseAbs());
      const double row_sum = units_.gamma(c.size + static_cast<Index>(before.blocks) * c.q.cols());
      arithmetic.row(t) += c.scores_error.row(local) * u.cwiseAbs() + weights_error * c.v.cwiseAbs() +
                           (row_sum + units_.input) * (weights.cwiseAbs() * c.v.cwiseAbs()) +
                           faded * before.value.cwiseAbs() +
                           (row_sum + units_.step) * (queries.cwiseAbs() * before.absolute);
    }
    return queries;
  }
  // y: the row on the states after the chunk. Returns the one on the states before it.
  Array earlier_chunk(const DeltaWalked& w, Index t, const Array& y) {
    const DeltaStages& c = w.c;
    Array scaled_v = c.v;
    for (Index i = 0; i < c.size; ++i)
      scaled_v.row(i) *= level_scale(form_.head, t, form_.head.initial.position + c.first + i);
    const Read before = read(w.before, t), after = read(w.after, t);
    const Array residual = scaled_v - c.start_keys * before.value, u = c.ut * residual;
    const Array r = y * c.keys.transpose(), through_w = r * c.w;
    const Array removed = removed_sizes(w, t);
    add("gain", t, sized(y) * sized(w.gain) * sized(scaled_v));
    add("removed", t, sized(r) * removed);
    add("keys", t, sized(y) * sized(c.keys).transpose() * sized(u));
    add(c.first == 0 ? "state" : "state.carried", t, sized(through_w) * before.sizes);
    add("carry", t, sized(y) * after.sizes);
    inside(w, t, r, residual, u, before.value);
    if (p_ == Norm::absolute) {
      const Array size = y.cwiseAbs();
      const double gain = units_.gamma(c.size);
      arithmetic.row(t) += (size * c.keys_error.transpose()) * u.cwiseAbs() +
                           units_.gamma(c.k.cols()) * (r.cwiseAbs() * c.w.cwiseAbs() * before.absolute) +
                           c.through_error(units_) * c.through() * (size * before.absolute) +
                           gain * (size * c.keys.cwiseAbs().transpose()) * removed +
                           (gain * (size * c.keys.cwiseAbs().transpose() * c.ut.cwiseAbs()) +
                            (gain + units_.input) * (size * w.gain.cwiseAbs())) *
                               scaled_v.cwiseAbs() +
                           2 * units_.step * (size * updated_sizes(w, t, scaled_v));
    }
    return c.through() * y - through_w;
  }
  // sum of the sizes of lambda W S_block
  Array removed_sizes(const DeltaWalked& w, Index t) const {
    Array sum = Array::Zero(w.c.size, columns_);
    for (const Block& block : w.before)
      sum += size_of(p_, level_scale(form_.head, t, block.start)) * sized(w.c.w * block.parts[0]);
    return sum;
  }
  // Every state that a subtraction or a merge may have rounded, by the sizes of what was added.
  Array updated_sizes(const DeltaWalked& w, Index t, const Array& scaled_v) const {
    Array sum = w.gain.cwiseAbs() * scaled_v.cwiseAbs();
    for (const Block& block : w.before)
      sum +=
          std::abs(level_scale(form_.head, t, block.start)) *
          Array(w.c.through() * block.parts[0] - w.c.keys.transpose() * (w.c.w * block.parts[0])).cwiseAbs();
    return merges(w) * sum;
  }
  static double merges(const DeltaWalked& w) { return 1 + static_cast<double>(w.before.size()); }
};

ErrorModel plain_error(const FormError& form) {
  const Units& units = form.units;
  const RowSet rows = form.row_set();
  ErrorSum sum(units, rows.count(), form.head.v.cols());
  const auto chunks = walk(form);
  DeltaPass absolute(form, Norm::absolute), square(form, Norm::square);
  absolute.run(chunks, rows), square.run(chunks, rows);
  for (const auto& [label, share] : absolute.labels) {
    const double unit = label == "carry"           ? units.carry
                        : label == "state.carried" ? units.carried_state
                                                   : units.operand;
    sum.rounded(label == "state.carried" ? "state" : label, unit, rows.pick(share),
                rows.pick(square.labels.at(label)));
  }
  sum.arithmetic(rows.pick(absolute.arithmetic));
  return finish_output(form, sum, absolute.o);
}

// The largest difference of two entries, relative to them.
double apart(const Matrix<double>& a, const Matrix<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (Index i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(a.data()[i] - b.data()[i]) / std::max(std::abs(b.data()[i]), 1e-300));
  return most;
}

double apart(const ErrorModel& a, const ErrorModel& b) {
  double most = std::max({apart(a.deterministic, b.deterministic), apart(a.accumulation, b.accumulation),
                          apart(a.variance, b.variance)});
  EXPECT_EQ(a.stages, b.stages);
  EXPECT_EQ(a.shares.size(), b.shares.size());
  for (const auto& [label, share] : b.shares) most = std::max(most, apart(a.shares.at(label), share));
  return most;
}

struct Setting {
  Shape shape;
  Index width;
};

const Setting settings[] = {{{70, 5, 3, true, false, true}, 4},     // from position 5: chunks of 1, 2, 4
                            {{150, 3, 2, false, false, false}, 4},  // more than 64 outputs read a chunk alike
                            {{41, 4, 6, true, false, false}, 16},
                            {{150, 3, 2, false, false, true}, 128},  // more than 64 outputs in one chunk
                            {{29, 3, 2, true, false, true}, 13},     // no power of two: direct is judged so
                            {{3, 2, 2, false, false, true}, 64}};
const char* const contracts[] = {"input=bf16 product=bf16 intermediate=bf16 state=bf16 output=bf16",
                                 "input=fp32 product=tf32 accumulate=fp32/truncate"};
const Operator& op() { return *find_operator("log_linear_gated_delta", "masked"); }

TEST(LogLinearDeltaError, IsThatOfTheSumsTakenOutputByOutputAndBlockByBlock) {
  for (const char* text : contracts)
    for (const Setting& s : settings)
      for (const bool all : {true, false}) {
        const Contract contract = parse_contract(text);
        const Units units(contract);
        const Head<double> head = random_head(op().declaration(), s.shape, contract, 11);
        std::vector<Index> chosen;
        for (Index t = s.shape.tokens - 1; t >= 0; t -= 3) chosen.insert(chosen.begin(), t);
        const FormError form{op().declaration(), head, units, 0, s.width, true, all ? nullptr : &chosen};
        EXPECT_LE(apart(*log_linear_delta_chunk_error(form), plain_error(form)), 1e-11)
            << text << ", " << s.shape.tokens << " tokens by " << s.width;
      }
}

TEST(LogLinearDeltaError, TellsApartAScaleOfAnyLevelChangedByAMillionth) {
  const Contract contract = parse_contract(contracts[0]);
  const Units units(contract);
  Head<double> head = random_head(op().declaration(), {75, 3, 2, true, false, true}, contract, 11);
  const FormError form{op().declaration(), head, units, 0, 4};
  const Matrix<double> before = plain_error(form).deterministic;
  for (Index level = 0; level <= 7; ++level) {
    const Index t = 74,
                position = head.initial.position + t;  // the cover of [0, 79) has blocks of these levels:
    const bool read = level == 0 || (position >> (level - 1) & 1) != 0;
    const double scale = head.level_scales(t, level);
    head.level_scales(t, level) = scale * (1 + 1e-6);
    const double difference = apart(log_linear_delta_chunk_error(form)->deterministic, before);
    head.level_scales(t, level) = scale;
    if (read)
      EXPECT_GT(difference, 1e-9) << level;
    else
      EXPECT_LE(difference, 1e-11) << level;
  }
}

}  // namespace
}  // namespace attest::log_linear_delta_errors
