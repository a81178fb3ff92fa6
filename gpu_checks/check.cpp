#include "gpu_checks/check.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "gpu_checks/adapters/doors.hpp"
#include "gpu_checks/judged_rows.hpp"
#include "gpu_checks/kernels/cpu/cpu_kernels.hpp"
#include "gpu_checks/oracle/gpu_oracle.hpp"
#include "gpu_checks/oracle/oracle_cache.hpp"
#include "reference/cases/random.hpp"
#include "reference/cases/recipe.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/certified_route.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/oracle.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double largest_radius_over_bound = power_of_two(-10);  // as judge() asks

std::int64_t since(Clock::time_point start) { return std::chrono::nanoseconds(Clock::now() - start).count(); }

// The judged rows of all slots under one another: the row of a slot's token, and back.
class Rows {
 public:
  // `choose`: the tokens of a slot of that length, ascending; none: all.
  using Choose = std::function<std::optional<std::vector<Index>>(std::size_t slot, Index length)>;
  Rows(const Problem& problem, const Choose& choose) : problem_(problem), slots_(slots(problem)) {
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const Index length = slots_[s].last - slots_[s].first;
      chosen_.push_back(choose(s, length));
      first_.push_back(total_);
      total_ += count(s);
    }
  }
  Index count(std::size_t slot) const {
    return chosen_[slot] ? static_cast<Index>(chosen_[slot]->size()) : slots_[slot].last - slots_[slot].first;
  }
  const std::vector<Index>* chosen(std::size_t slot) const {
    return chosen_[slot] ? &*chosen_[slot] : nullptr;
  }
  bool all() const {
    return std::none_of(chosen_.begin(), chosen_.end(), [](const auto& c) { return c.has_value(); });
  }
  Index total() const { return total_; }
  const std::vector<Slot>& list() const { return slots_; }
  Index first(std::size_t slot) const { return first_[slot]; }
  const Slot& slot_of(Index row) const { return slots_[slot_index(row)]; }
  Index position_of(Index row) const {
    const std::size_t slot = slot_index(row);
    return token(slot, row - first_[slot]);
  }

  // A tensor [B, T, H, dv] of at least these tokens as rows of all slots.
  Matrix<double> gather(const std::vector<double>& data, Index tokens) const {
    Matrix<double> rows(total_, problem_.value_dim);
    for (std::size_t s = 0; s < slots_.size(); ++s)
      for (Index i = 0; i < count(s); ++i) {
        const Index t = slots_[s].first + token(s, i);
        for (Index c = 0; c < rows.cols(); ++c)
          rows(first_[s] + i, c) = data[static_cast<std::size_t>(
              ((slots_[s].batch * tokens + t) * problem_.heads + slots_[s].head) * rows.cols() + c)];
      }
    return rows;
  }

 private:
  Index token(std::size_t slot, Index i) const {
    return chosen_[slot] ? (*chosen_[slot])[static_cast<std::size_t>(i)] : i;
  }
  std::size_t slot_index(Index row) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), row) - first_.begin()) - 1;
  }
  const Problem& problem_;
  std::vector<Slot> slots_;
  std::vector<std::optional<std::vector<Index>>> chosen_;
  std::vector<Index> first_;
  Index total_ = 0;
};

Normaliser normaliser_of(const Operator& op, const Problem& problem) {
  const bool scaled = problem.options.scale.value_or(op.declaration().unit_scale ? 1 : 0) != 1;
  return {problem.options.normalize, nearest_double(problem.options.epsilon), scaled};
}

ErrorModel model_of(const Operator& op, const Evaluation& form, const Contract& contract,
                    const Problem& problem, const Rows& rows, int threads) {
  const Index columns = problem.value_dim;
  ErrorModel all;
  all.deterministic = all.accumulation = all.variance = zeros<double>(rows.total(), columns);
  std::mutex guard;
  std::vector<std::string> undecided(rows.list().size());
  for_each_parallel(static_cast<Index>(rows.list().size()), threads, [&](Index slot) {
    const auto s = static_cast<std::size_t>(slot);
    if (rows.list()[s].last == rows.list()[s].first) return;
    const Head<double> head = head_of<double>(problem, op.declaration(), rows.list()[s]);
    const ErrorModel one = error_model(op, head, form, contract, normaliser_of(op, problem), rows.chosen(s));
    if (one.undecided) undecided[s] = one.reason;
    const std::lock_guard lock(guard);
    all.deterministic.set_rows(rows.first(s), one.deterministic);
    all.accumulation.set_rows(rows.first(s), one.accumulation);
    all.variance.set_rows(rows.first(s), one.variance);
    for (const auto& [label, share] : one.shares) {
      auto& target = all.shares.try_emplace(label, zeros<double>(rows.total(), columns)).first->second;
      target.set_rows(rows.first(s), share);
    }
    all.stages = std::max(all.stages, one.stages);
    all.undecided = all.undecided || one.undecided;
  });
  for (const std::string& reason : undecided)
    if (all.reason.empty()) all.reason = reason;
  return all;
}

constexpr Index longest_plain = 4096;

std::string judged_in_words(const Rows& rows) {
  Index judged = 0, all = 0;
  for (std::size_t s = 0; s < rows.list().size(); ++s)
    judged += rows.count(s), all += rows.list()[s].last - rows.list()[s].first;
  return std::to_string(judged) + " of " + std::to_string(all) +
         " rows judged by the bound (ends, edges of chunks, powers of two, the rest drawn from equal parts), "
         "all for being finite";
}

// The number of values that are not finite although the exact ones are, over all rows.
Index not_finite_among_all(const std::vector<double>& got, const std::vector<double>& exact,
                           const Problem& problem, Index exact_tokens) {
  const Index width = problem.heads * problem.value_dim;
  Index count = 0;
  for (Index b = 0; b < problem.batch; ++b)
    for (Index i = 0; i < problem.tokens * width; ++i)
      count += !std::isfinite(got[static_cast<std::size_t>(b * problem.tokens * width + i)]) &&
               std::isfinite(exact[static_cast<std::size_t>(b * exact_tokens * width + i)]);
  return count;
}

// The mean over the elements of each stage's part of their bound.
std::map<std::string, double> mean_shares(const ErrorModel& model) {
  std::map<std::string, double> mean;
  Index counted = 0;
  for (Index i = 0; i < model.deterministic.size(); ++i) {
    double total = 0;
    for (const auto& [label, share] : model.shares) total += share.data()[i];
    if (!(total > 0) || !std::isfinite(total)) continue;
    ++counted;
    for (const auto& [label, share] : model.shares) mean[label] += share.data()[i] / total;
  }
  for (auto& [label, sum] : mean) sum /= static_cast<double>(counted);
  return mean;
}

Quantiles quantiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1)) - 1;
    std::nth_element(values.begin(), place, values.end());
    return *place;
  };
  return {at(0.5), at(0.99), at(1)};
}

// Errors in units in the last place, as judge() counts them: for cases that have no bound.
Quantiles ulps_of(const Matrix<double>& got, const Expected& expected, const Format& output) {
  std::vector<double> ulps;
  for (Index i = 0; i < got.size(); ++i) {
    const double high = expected.high.data()[i];
    if (!std::isfinite(high)) continue;
    const double error = std::abs((got.data()[i] - high) - expected.low.data()[i]);
    const double ratio = error == 0 ? 0 : error / (output.unit_roundoff() * std::abs(high));
    ulps.push_back(std::isnan(ratio) ? INFINITY : ratio);
  }
  return quantiles_of(std::move(ulps));
}

// |got - expected| / |expected| in the l2 norm of one sequence and head, the largest of them. Squares of what is divided
// by the largest entry cannot overflow.
std::optional<double> relative_norm(const Matrix<double>& got, const Expected& expected, const Rows& rows) {
  std::optional<double> worst;
  for (std::size_t s = 0; s < rows.list().size(); ++s) {
    const Index first = rows.first(s) * got.cols();
    const Index last = first + rows.count(s) * got.cols();
    std::vector<double> errors, values;
    for (Index i = first; i < last; ++i) {
      const double high = expected.high.data()[i];
      if (!std::isfinite(high)) continue;
      const double error = std::abs((got.data()[i] - high) - expected.low.data()[i]);
      errors.push_back(std::isnan(error) ? INFINITY : error), values.push_back(std::abs(high));
    }
    if (errors.empty()) continue;
    const auto scaled = [](const std::vector<double>& all, double scale) {
      double sum = 0;
      for (const double x : all) sum += (x / scale) * (x / scale);
      return std::sqrt(sum);
    };
    const double error = *std::max_element(errors.begin(), errors.end());
    const double value = *std::max_element(values.begin(), values.end());
    double norm = 0;
    if (error > 0)
      norm = value == 0 || std::isinf(error)
                 ? INFINITY
                 : error / value * (scaled(errors, error) / scaled(values, value));
    worst = std::max(worst.value_or(0), norm);
  }
  return worst;
}

// "3..17", "4", "all", or the single values of a short list.
std::string in_words(const std::set<Index>& values, Index count) {
  if (values.empty()) return "";
  if (static_cast<Index>(values.size()) == count && count > 1) return "all";
  if (values.size() == 1) return std::to_string(*values.begin());
  const bool dense = *values.rbegin() - *values.begin() + 1 == static_cast<Index>(values.size());
  if (dense || values.size() > 6)
    return std::to_string(*values.begin()) + ".." + std::to_string(*values.rbegin());
  std::string text;
  for (const Index v : values) text += (text.empty() ? "" : ", ") + std::to_string(v);
  return text;
}

struct Comparison {
  const Matrix<double>&got, &high, &low;
  const ErrorModel& model;
  double error(Index i) const { return std::abs((got.data()[i] - high.data()[i]) - low.data()[i]); }
  double bound(Index i) const { return model.deterministic.data()[i]; }
  bool violated(Index i) const {
    if (!std::isfinite(high.data()[i])) return std::isfinite(got.data()[i]);
    return !(error(i) <= bound(i));
  }
  // Error over bound, NaN as infinity, for ordering.
  double ratio(Index i) const {
    if (!std::isfinite(high.data()[i])) return violated(i) ? INFINITY : 0;
    const double e = error(i);
    if (e == 0) return 0;
    const double r = e / bound(i);
    return std::isnan(r) ? INFINITY : r;
  }
};

void describe(const Comparison& compared, const Rows& rows, const Problem& problem, const Evaluation& how,
              Checked& result) {
  const Index columns = problem.value_dim, count = compared.got.size();
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto top = order.begin() + static_cast<std::ptrdiff_t>(std::min<Index>(3, count));
  std::partial_sort(order.begin(), top, order.end(), [&](Index a, Index b) {
    const double ra = compared.ratio(a), rb = compared.ratio(b);
    return ra != rb ? ra > rb : a < b;
  });
  for (auto i = order.begin(); i != top; ++i) {
    const Slot& slot = rows.slot_of(*i / columns);
    result.worst.push_back({slot.batch, slot.first + rows.position_of(*i / columns), slot.head, *i % columns,
                            compared.high.data()[*i], compared.got.data()[*i], compared.bound(*i),
                            compared.ratio(*i)});
  }
  std::map<Index, PositionError> positions;
  std::set<Index> tokens, chunk_positions, heads, violated_columns;
  for (Index i = 0; i < count; ++i) {
    const Index row = i / columns, position = rows.position_of(row);
    const double ratio = compared.ratio(i);
    auto [at, fresh] = positions.try_emplace(position);
    if (fresh || ratio > at->second.ratio)
      at->second = {position, ratio, compared.error(i), compared.bound(i)};
    if (!compared.violated(i)) continue;
    tokens.insert(position), heads.insert(rows.slot_of(row).head), violated_columns.insert(i % columns);
    if (how.form == Form::chunk) chunk_positions.insert(position % how.chunk);
  }
  for (const auto& [position, error] : positions) result.positions.push_back(error);
  if (!tokens.empty())
    result.whereabouts = Whereabouts{in_words(tokens, problem.tokens), in_words(chunk_positions, how.chunk),
                                     in_words(heads, problem.heads), in_words(violated_columns, columns)};
}

bool independent(const Case& input, const Contract& contract) {
  return input.drawn() && find_recipe(input.recipe)->independent &&
         find_gate_recipe(input.gates)->independent && !contract.truncates;
}

// The masked dense evaluation that a user would write: one chunk as wide as the sequence, every product with operands
// in the input format and sums in fp32 (fp64 for fp64 inputs); a stream where the operator has no chunk form.
std::optional<Kernel> plain_kernel(const Operator& op, const Problem& problem, const Contract& of) {
  const Declaration& declaration = op.declaration();
  Contract contract;
  contract.input = contract.product = contract.intermediate = contract.state = contract.output = of.input;
  contract.accumulate = contract.gate_sum = of.input == fp64 ? fp64 : fp32;
  Evaluation how{Form::chunk, 1, static_cast<int>(declaration.algebras.size()) - 1};
  while (how.chunk < problem.tokens) how.chunk *= 2;
  const bool chunked =
      std::find(declaration.forms.begin(), declaration.forms.end(), Form::chunk) != declaration.forms.end();
  if (!chunked) how.form = Form::stream;
  return cpu_kernel(op, how, "plain", contract);
}

constexpr const char* raw_keys =
    "; the keys are no unit vectors, so that the state may grow with every token: --unit-keys divides q and "
    "k by their "
    "l2 norm";

// Whether a delta rule reads a key that is clearly longer than a unit vector, beyond what rounding one can make of it.
bool long_keys(const Problem& problem, const Declaration& declaration) {
  const Tensor* keys = problem.field("k");
  if (!needs_unit_keys(declaration) || !keys) return false;
  const auto width = static_cast<std::size_t>(problem.key_dim);
  for (std::size_t row = 0; width > 0 && row + width <= keys->data.size(); row += width) {
    double squares = 0;
    for (std::size_t c = row; c < row + width; ++c) squares += keys->data[c] * keys->data[c];
    if (squares > 1.25) return true;
  }
  return false;
}

// The oracle for everybody who sees the same rounded inputs, of the longest length: by certified double-double sums
// where they exist, and by intervals for those whose bound asks for a smaller radius.
class SharedOracle {
 public:
  SharedOracle(const Operator& op, Problem rounded, int threads)
      : problem(std::move(rounded)), op_(op), threads_(threads) {}
  const KeptOracle& quick() {
    if (!quick_) quick_ = evaluate(true);
    return *quick_;
  }
  const KeptOracle& sharp() {
    const bool is_sharp = quick().result.method.find("double-double") == std::string::npos;
    if (!sharp_) sharp_ = is_sharp ? quick_ : evaluate(false);
    return *sharp_;
  }

  int threads() const { return threads_; }

  const Problem problem;  // rounded, all tokens

 private:
  std::shared_ptr<const KeptOracle> evaluate(bool double_double) const {
    OracleRequest request;
    request.rows = {0, problem.tokens};
    request.threads = threads_;
    request.double_double = double_double;
    return oracle_cache().get(op_, problem, request);
  }
  const Operator& op_;
  const int threads_;
  std::shared_ptr<const KeptOracle> quick_, sharp_;
};

// Plain figures are the same for kernels of one input format and length: a little memory of the last ones.
struct PlainCache {
  std::map<std::pair<std::string, Index>, Matrix<double>> outputs;
};

// The oracle's values in the rows that are compared.
struct Truth {
  Expected expected;
  Matrix<double> magnitude;
};

Truth truth_of(const KeptOracle& oracle, const Rows& rows, Index tokens) {
  const OracleTensor& o = oracle.result.tensors.at("o");
  return {{rows.gather(o.value, tokens), rows.gather(o.low, tokens), rows.gather(o.radius, tokens)},
          rows.gather(o.magnitude, tokens)};
}

// The truth of a long delta rule, which intervals enclose at a precision that grows with T: the chunk form in double. Its
// radius is the bound that the error model gives a kernel of that precision, four times, since the model is evaluated in
// double itself; the first rows are compared with interval arithmetic.
constexpr Index double_delta_tokens = 1024, compared_with_intervals = 32;

struct DoubleTruth {
  Truth truth;
  std::vector<double> values;  // of all rows, [B, T, H, dv]
};

Contract double_contract() {
  Contract c;
  c.input = c.product = c.intermediate = c.state = c.accumulate = c.gate_sum = c.output = fp64;
  c.exp_ulp = 2;
  return c;
}

void compare_with_intervals(const Operator& op, const Problem& problem, const Slot& slot,
                            const Evaluation& form, const std::vector<double>& values) {
  Slot first = slot;
  first.last = std::min(slot.last, slot.first + compared_with_intervals);
  const ErrorModel model = error_model(op, head_of<double>(problem, op.declaration(), first), form,
                                       double_contract(), normaliser_of(op, problem));
  const PrecisionScope precision(first_bits);
  Solution<Interval> exact = static_cast<const Evaluator<Interval>&>(op).evaluate(
      head_of<Interval>(problem, op.declaration(), first), form);
  divide_out(problem, exact.o);
  for (Index t = 0; t < exact.o.rows(); ++t)
    for (Index c = 0; c < problem.value_dim; ++c) {
      const Index row = (slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head;
      const Enclosure at = enclosure_of(exact.o(t, c));
      const double value = values[static_cast<std::size_t>(row * problem.value_dim + c)];
      const double room = 4 * model.deterministic(t, c) + at.radius;
      if (!(std::abs((value - at.high) - at.low) <= room))
        throw std::runtime_error("double and interval arithmetic contradict each other at token " +
                                 std::to_string(slot.first + t) + " of head " + std::to_string(slot.head) +
                                 " of " + op.declaration().name);
    }
}

std::optional<DoubleTruth> truth_in_double(const Operator& op, const Problem& problem, const Rows& rows,
                                           int threads) {
  if (!op.declaration().beta || problem.tokens < double_delta_tokens || problem.options.normalize)
    return std::nullopt;
  if (std::any_of(problem.fields.begin(), problem.fields.end(), [](const auto& field) {
        const auto& data = field.second.data;
        return std::any_of(data.begin(), data.end(), [](double x) { return std::isnan(x) || x == INFINITY; });
      }))
    return std::nullopt;
  const Evaluation form{Form::chunk, 64, 0};
  const ErrorModel model = model_of(op, form, double_contract(), problem, rows, threads);
  if (model.undecided) return std::nullopt;
  DoubleTruth found;
  found.values.resize(static_cast<std::size_t>(problem.batch * problem.tokens * problem.heads) *
                      static_cast<std::size_t>(problem.value_dim));
  for_each_parallel(static_cast<Index>(rows.list().size()), threads, [&](Index s) {
    const Slot& slot = rows.list()[static_cast<std::size_t>(s)];
    const Solution<double> solution = static_cast<const Evaluator<double>&>(op).evaluate(
        head_of<double>(problem, op.declaration(), slot), form);
    for (Index t = 0; t < solution.o.rows(); ++t)
      for (Index c = 0; c < problem.value_dim; ++c) {
        const Index row = (slot.batch * problem.tokens + slot.first + t) * problem.heads + slot.head;
        found.values[static_cast<std::size_t>(row * problem.value_dim + c)] = solution.o(t, c);
      }
    compare_with_intervals(op, problem, slot, form, found.values);
  });
  found.truth.expected.high = rows.gather(found.values, problem.tokens);
  found.truth.expected.low = zeros<double>(rows.total(), problem.value_dim);
  found.truth.expected.radius = model.deterministic;
  for (Index i = 0; i < model.deterministic.size(); ++i) found.truth.expected.radius.data()[i] *= 4;
  return found;
}

// "; 37 of them are NaN, the first o[0,3,1,2]": what is not finite where the exact value is.
std::string not_finite(const Matrix<double>& got, const Expected& expected, const Rows& rows) {
  Index nan = 0, infinite = 0, first = -1;
  for (Index i = 0; i < got.size(); ++i) {
    if (std::isfinite(got.data()[i]) || !std::isfinite(expected.high.data()[i])) continue;
    ++(std::isnan(got.data()[i]) ? nan : infinite);
    if (first < 0) first = i;
  }
  if (first < 0) return "";
  const Index row = first / got.cols();
  const Slot& slot = rows.slot_of(row);
  std::string text = "; ";
  if (nan > 0) text += std::to_string(nan) + (nan == 1 ? " is NaN" : " are NaN");
  if (infinite > 0)
    text += (nan > 0 ? ", " : "") + std::to_string(infinite) + (infinite == 1 ? " is" : " are") + " infinite";
  return text + ", the first o[" + std::to_string(slot.batch) + ',' +
         std::to_string(slot.first + rows.position_of(row)) + ',' + std::to_string(slot.head) + ',' +
         std::to_string(first % got.cols()) + ']';
}

Quantiles cancellation_of(const Truth& truth) {
  std::vector<double> ratios;
  for (Index i = 0; i < truth.magnitude.size(); ++i)
    if (const double value = std::abs(truth.expected.high.data()[i]); value > 0 && std::isfinite(value))
      ratios.push_back(truth.magnitude.data()[i] / value);
  return quantiles_of(std::move(ratios));
}

// The plain evaluation of the same rounded input; empty: there is none.
const Matrix<double>& plain_output(const Kernel& kernel, const Operator& op, const Problem& problem,
                                   const Rows& rows, PlainCache& plain) {
  Matrix<double>& o = plain.outputs[{std::string(kernel.contract.input.name), problem.tokens}];
  if (o.size() > 0) return o;
  if (!rows.all() || problem.tokens > longest_plain) return o;
  if (const auto evaluation = plain_kernel(op, problem, kernel.contract))
    if (const KernelResult result = evaluation->run(problem); result.status == KernelStatus::ok)
      o = rows.gather(result.outputs.at("o").data, problem.tokens);
  return o;
}

Checked judge_kernel(const Kernel& kernel, const Operator& op, const Case& input, SharedOracle& oracle,
                     Index tokens, PlainCache& plain) {
  auto start = Clock::now();
  Checked result;
  result.kernel = &kernel, result.input = input, result.tokens = tokens;
  if (result.input.tokens || tokens != oracle.problem.tokens) result.input.tokens = tokens;
  const Problem problem =
      tokens == oracle.problem.tokens ? oracle.problem : first_tokens(oracle.problem, tokens);
  const auto finish = [&](Verdict verdict, std::string reason) {
    result.verdict = verdict, result.reason = std::move(reason);
    result.total_ns += since(start);
    return result;
  };
  KernelResult run = kernel.run(problem);
  result.kernel_ns = run.nanoseconds;
  if (run.status == KernelStatus::unsupported) return finish(Verdict::not_run, run.message);
  if (run.status == KernelStatus::failed) return finish(Verdict::fail, run.message);
  const Tensor& o = run.outputs["o"];
  const std::vector<Index> shape{problem.batch, tokens, problem.heads, problem.value_dim};
  if (o.shape != shape || element_count(shape) != static_cast<Index>(o.data.size()))
    return finish(Verdict::fail, "the output o has another shape than [B, T, H, dv] of the inputs");

  const Rows rows(problem, [&](std::size_t slot, Index length) {
    return judged_rows(op.declaration(), {length, problem.key_dim, problem.value_dim}, kernel.how, input.seed,
                       slot);
  });
  result.judged = rows.all() ? std::nullopt : std::optional(rows.total());
  const Matrix<double> got = rows.gather(o.data, tokens);
  const ErrorModel model = model_of(op, kernel.how, kernel.contract, problem, rows, oracle.threads());
  if (got.size() == 0) return finish(Verdict::not_run, "no tokens, nothing to compare");
  const Judging how{independent(input, kernel.contract), got.size()};
  Truth truth;
  const std::vector<double>* judged_by = nullptr;
  Index judged_tokens = tokens;
  const auto judge_by = [&](const KeptOracle& (SharedOracle::*which)()) {
    result.total_ns += since(start);  // the oracle's time is counted apart
    const KeptOracle& kept = (oracle.*which)();
    start = Clock::now();
    result.oracle_method = kept.result.method, result.oracle_bits = kept.result.bits;
    result.oracle_ns += kept.nanoseconds;
    judged_by = &kept.result.tensors.at("o").value, judged_tokens = oracle.problem.tokens;
    truth = truth_of(kept, rows, oracle.problem.tokens);
    result.judgement = judge(got, truth.expected, model, kernel.contract, how);
  };
  const auto start_of_truth = Clock::now();
  std::optional<DoubleTruth> by_double;
  if (!model.undecided) by_double = truth_in_double(op, problem, rows, oracle.threads());
  if (by_double) {
    result.oracle_method = "double, radius by the error model", result.oracle_bits = 53;
    result.oracle_ns += since(start_of_truth);
    truth = by_double->truth, judged_by = &by_double->values;
    result.judgement = judge(got, truth.expected, model, kernel.contract, how);
  }
  if (!by_double || result.judgement.radius_over_bound > largest_radius_over_bound) {
    judge_by(by_double ? &SharedOracle::sharp : &SharedOracle::quick);
    if (result.judgement.radius_over_bound > largest_radius_over_bound && &oracle.sharp() != &oracle.quick())
      judge_by(&SharedOracle::sharp);
  }
  result.bounded = !model.undecided;
  result.norm = relative_norm(got, truth.expected, rows);
  if (result.bounded)
    describe({got, truth.expected.high, truth.expected.low, model}, rows, problem, kernel.how, result),
        result.stages = mean_shares(model);
  else
    result.judgement.grade.ulp = ulps_of(got, truth.expected, kernel.contract.output);
  result.magnitude = cancellation_of(truth);

  if (const Matrix<double>& plainly = plain_output(kernel, op, problem, rows, plain); plainly.size() > 0) {
    result.plain = judge(plainly, truth.expected, model, kernel.contract, how).grade;
    if (!result.bounded) result.plain->ulp = ulps_of(plainly, truth.expected, kernel.contract.output);
  }
  if (!rows.all()) {
    const Index rest = not_finite_among_all(o.data, *judged_by, problem, judged_tokens);
    if (rest > 0 && result.judgement.verdict != Verdict::fail) {
      result.judgement.verdict = Verdict::fail;
      result.judgement.reason = std::to_string(rest) + " values are not finite where the exact ones are";
    }
    if (!result.judgement.reason.empty()) result.judgement.reason += "; ";
    result.judgement.reason += judged_in_words(rows);
  }
  const bool raw = result.judgement.verdict == Verdict::undecided && long_keys(problem, op.declaration());
  std::string reason = result.judgement.reason;
  const std::string no_number = not_finite(got, truth.expected, rows), times = ", the worst inf times";
  if (const auto at = reason.find(times); at != reason.npos && !no_number.empty())
    reason.erase(at, times.size());
  return finish(result.judgement.verdict, reason + no_number + (raw ? raw_keys : ""));
}

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return fp32;
    case Dtype::f16:
      return fp16;
    case Dtype::bf16:
      return bf16;
    case Dtype::f8_e4m3:
      return fp8_e4m3;
    case Dtype::f8_e5m2:
      return fp8_e5m2;
    default:
      return fp64;
  }
}

const Operator& operator_of(const Kernel& kernel) { return operator_named(kernel.op, kernel.variant); }

// Kernels whose contracts round every input alike.
bool same_rounding(const Contract& a, const Contract& b) {
  return a.input == b.input && a.gate_sum == b.gate_sum && a.state == b.state;
}

// SUSPECT once more with fresh seeds.
void ask_again(const Kernel& kernel, const Operator& op, Checked& result) {
  if (result.verdict != Verdict::suspect || !result.input.drawn()) return;
  std::string seeds;
  for (const char* attempt : {"again/1", "again/2"}) {
    Case fresh = result.input;
    fresh.seed = Random(result.input.seed, attempt).bits();
    SharedOracle oracle(op, round_inputs(kernel.contract, draw_problem(fresh, op.declaration())), 1);
    PlainCache plain;
    const Checked second = judge_kernel(kernel, op, fresh, oracle, *fresh.tokens, plain);
    seeds += (seeds.empty() ? "" : " and ") + std::to_string(fresh.seed);
    if (second.verdict != Verdict::suspect && second.verdict != Verdict::fail) continue;
    result.verdict = Verdict::fail;
    result.reason += second.verdict == Verdict::fail ? "; FAIL" : "; SUSPECT again";
    result.reason += " with seed " + std::to_string(fresh.seed);
    return;
  }
  result.reason += "; not again with seeds " + seeds;
}

// One rounded input, the kernels that see it, and the indices of their cases.
struct Job {
  const CheckSource* source;
  const Operator* op;
  Case input;
  std::vector<Index> lengths;
  std::vector<std::pair<const Kernel*, std::vector<Index>>> kernels;  // and an index for every length
};

// Drawn inputs of different lengths have level scales of their own: every length is a job. A file is one.
std::vector<std::vector<Index>> length_groups(const CheckSource& source) {
  if (!source.input.drawn()) return {source.lengths};
  std::vector<std::vector<Index>> groups;
  for (const Index length : source.lengths) groups.push_back({length});
  return groups;
}

void add_jobs(const CheckSource& source, Index first_index, const CheckListener& listener,
              std::vector<Job>& jobs) {
  const Operator& op = operator_of(*source.kernels.at(0));
  Index before = 0;
  for (const std::vector<Index>& lengths : length_groups(source)) {
    Case input = source.input;
    if (input.drawn()) input.tokens = lengths.back(), draw_problem(input, op.declaration());  // BadInput now
    const auto first = static_cast<std::ptrdiff_t>(jobs.size());
    for (std::size_t k = 0; k < source.kernels.size(); ++k) {
      std::vector<Index> indices;
      bool wanted = false;
      for (std::size_t l = 0; l < lengths.size(); ++l) {
        indices.push_back(first_index + static_cast<Index>(k * source.lengths.size() + l) + before);
        wanted = wanted || !listener.known || !listener.known(indices.back());
      }
      if (!wanted) continue;
      auto job = std::find_if(jobs.begin() + first, jobs.end(), [&](const Job& j) {
        return same_rounding(j.kernels[0].first->contract, source.kernels[k]->contract);
      });
      if (job == jobs.end()) job = jobs.insert(jobs.end(), {&source, &op, input, lengths, {}});
      job->kernels.emplace_back(source.kernels[k], indices);
    }
    before += static_cast<Index>(lengths.size());
  }
}

std::vector<Job> jobs_of(const std::vector<CheckSource>& sources, const CheckListener& listener) {
  std::vector<Job> jobs;
  Index total = 0;
  for (const CheckSource& source : sources) {
    add_jobs(source, total, listener, jobs);
    total += static_cast<Index>(source.kernels.size() * source.lengths.size());
  }
  return jobs;
}

// Hands results over, in order where it is asked for.
class Sequencer {
 public:
  Sequencer(Index total, const CheckListener& listener)
      : results_(listener.result ? static_cast<std::size_t>(total) : 0), listener_(listener) {
    for (Index i = 0; i < total; ++i)
      if (known(i)) --to_run_;
    to_run_ += total;
  }
  bool known(Index index) const { return listener_.known && listener_.known(index); }
  void add(Index index, Checked result) {
    const std::lock_guard lock(guard_);
    if (listener_.finished) listener_.finished(index, result);
    ++done_;
    if (listener_.progress) listener_.progress(done_, to_run_);
    if (!listener_.result) return;
    results_[static_cast<std::size_t>(index)] = std::move(result);
    for (; next_ < results_.size() && (results_[next_] || known(static_cast<Index>(next_))); ++next_) {
      if (results_[next_]) listener_.result(*results_[next_]);
      results_[next_].reset();
    }
  }

 private:
  std::mutex guard_;
  std::vector<std::optional<Checked>> results_;
  std::size_t next_ = 0;
  Index done_ = 0, to_run_ = 0;
  const CheckListener& listener_;
};

void perform(const Job& job, int oracle_threads, Sequencer& sequencer) {
  const Problem drawn =
      job.input.drawn() ? draw_problem(job.input, job.op->declaration()) : job.source->problem;
  SharedOracle oracle(*job.op, round_inputs(job.kernels.at(0).first->contract, drawn), oracle_threads);
  PlainCache plain;
  for (const auto& [kernel, indices] : job.kernels)
    for (std::size_t l = 0; l < job.lengths.size(); ++l) {
      if (sequencer.known(indices[l])) continue;
      Checked result = judge_kernel(*kernel, *job.op, job.input, oracle, job.lengths[l], plain);
      ask_again(*kernel, *job.op, result);
      sequencer.add(indices[l], std::move(result));
    }
}

}  // namespace

Index case_count(const std::vector<CheckSource>& sources) {
  Index total = 0;
  for (const CheckSource& source : sources)
    total += static_cast<Index>(source.kernels.size() * source.lengths.size());
  return total;
}

std::vector<Index> oracle_groups(const std::vector<CheckSource>& sources) {
  std::vector<Index> groups(static_cast<std::size_t>(case_count(sources)));
  const std::vector<Job> jobs = jobs_of(sources, {});
  for (std::size_t j = 0; j < jobs.size(); ++j)
    for (const auto& [kernel, indices] : jobs[j].kernels)
      for (const Index index : indices) groups[static_cast<std::size_t>(index)] = static_cast<Index>(j);
  return groups;
}

void check(const std::vector<CheckSource>& sources, int threads, const CheckListener& listener) {
  std::string without;
  use_certified_engine(gpu_engine(without), gpu_oracle_tokens);
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::vector<Job> jobs = jobs_of(sources, listener);
  Sequencer sequencer(case_count(sources), listener);
  const int oracle_threads = jobs.empty() ? 1 : std::max(1, threads / static_cast<int>(jobs.size()));
  for_each_parallel(static_cast<Index>(jobs.size()), threads,
                    [&](Index i) { perform(jobs[static_cast<std::size_t>(i)], oracle_threads, sequencer); });
}

Checked check_one(const Kernel& kernel, const Case& input, const Problem& problem) {
  const Operator& op = operator_of(kernel);
  SharedOracle oracle(op, round_inputs(kernel.contract, problem), 0);
  PlainCache plain;
  Checked result = judge_kernel(kernel, op, input, oracle, problem.tokens, plain);
  ask_again(kernel, op, result);
  return result;
}

Problem first_tokens(const Problem& problem, Index tokens) {
  if (tokens == problem.tokens) return problem;
  if (tokens > problem.tokens)
    throw BadInput("T=" + std::to_string(tokens) + ": expected at most the " +
                   std::to_string(problem.tokens) + " tokens of the input");
  if (!problem.cu_seqlens.empty())
    throw BadInput("T=" + std::to_string(tokens) + ": a packed input is checked as a whole");
  Problem cut = problem;
  cut.tokens = tokens;
  for (auto& [name, tensor] : cut.fields) {
    if (name == "decay" || name == "cu_seqlens" || name.starts_with("initial_state.")) continue;
    const Index inner = element_count({tensor.shape.begin() + 2, tensor.shape.end()});
    std::vector<double> kept;
    for (Index b = 0; b < problem.batch; ++b) {
      const auto from = tensor.data.begin() + b * problem.tokens * inner;
      kept.insert(kept.end(), from, from + tokens * inner);
    }
    tensor.data = std::move(kept);
    tensor.shape[1] = tokens;
  }
  return cut;
}

Problem problem_of(const Case& input, const Declaration& declaration) {
  if (input.drawn()) return draw_problem(input, declaration);
  const SafetensorsFile file(input.input);
  Problem problem = load_problem(file, declaration, input.options);
  for (const char* name : {"q", "k"}) {
    if (!input.unit_keys) break;
    Tensor& rows = problem.fields.at(name);
    normalise_rows(rows);
    const Format format = format_of(file.info(name).dtype);
    for (double& x : rows.data) x = round_to(format, x);
  }
  return first_tokens(problem, input.tokens.value_or(problem.tokens));
}

std::string replay_start(const Kernel& kernel, const std::string& program) {
  std::string glob;  // that this name alone matches
  bool plain = true;
  for (const char c : kernel.name) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) glob += '\\';
    glob += c;
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) ||
                      std::string_view("._-+:/@").find(c) != std::string_view::npos);
  }
  return program + " check " + (kernel.source.empty() ? "" : kernel.source + ' ') + "--kernel " +
         (plain ? glob : shell_word(glob));
}

std::string replay_line(const Kernel& kernel, const Case& input, const std::string& program) {
  return replay_start(kernel, program) + " --case '" + to_text(input) + "'";
}

}  // namespace attest
