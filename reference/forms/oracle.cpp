#include "reference/forms/oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "reference/forms/certified_delta_route.hpp"
#include "reference/forms/certified_route.hpp"
#include "reference/forms/certify.hpp"

namespace attest {
namespace {

bool is_decayed(const Problem& problem) {
  if (const Tensor* decay = problem.field("decay"))
    return std::ranges::any_of(decay->data, [](double gamma) { return gamma != 1; });
  return problem.options.decay.value_or(1) != 1;
}

bool has_form(const Declaration& declaration, Form form) {
  return std::ranges::find(declaration.forms, form) != declaration.forms.end();
}

std::string form_list(const std::vector<Form>& forms) {
  std::string text;
  for (Form form : forms) text += (text.empty() ? "" : ", ") + std::string(form_name(form));
  return text;
}

// The slots that hold some of the rows, without their tokens after them.
std::vector<Slot> slots_of_rows(const Problem& problem, const std::optional<std::pair<Index, Index>>& rows) {
  std::vector<Slot> list;
  for (Slot slot : slots(problem)) {
    if (rows) {
      slot.last = std::min(slot.last, rows->second);
      if (slot.last <= std::max(slot.first, rows->first)) continue;
    }
    list.push_back(slot);
  }
  return list;
}

// [B, T, ...] -> [B, rows, ...]
template <class T>
std::vector<T> kept_rows(const std::vector<T>& data, const std::vector<Index>& shape,
                         std::pair<Index, Index> rows) {
  std::vector<T> kept;
  if (data.empty()) return kept;
  const Index width = shape[2] * shape[3];
  for (Index b = 0; b < shape[0]; ++b)
    kept.insert(kept.end(), data.begin() + (b * shape[1] + rows.first) * width,
                data.begin() + (b * shape[1] + rows.second) * width);
  return kept;
}

// Stand for that method among the precisions of the slots.
constexpr int double_double_bits = -1, engine_bits = -2, double_bits = -3;

Interval interval_around(double high, double low, double radius) {
  Interval around;
  mpfi_interv_d(around.backend().data(), -radius, radius);
  return Interval(high) + Interval(low) + around;
}

class Oracle {
 public:
  Oracle(const Operator& op, const Problem& problem, const OracleRequest& request)
      : op_(op),
        declaration_(op.declaration()),
        request_(request),
        disturbed_(holds_non_finite_data(problem)),
        finite_(disturbed_ ? finite_part(problem) : Problem()),
        reach_(disturbed_ ? reach_of_non_finite(problem) : Problem()),
        problem_(disturbed_ ? finite_ : problem),
        levels_(final_levels(problem, declaration_)) {
    result_.how = request.how.value_or(fastest_form(declaration_, problem));
    check_form(declaration_, problem, result_.how);
    if (request.exact) check_rational(declaration_, problem);
    if (const auto& rows = request.rows;
        rows && !(0 <= rows->first && rows->first <= rows->second && rows->second <= problem.tokens))
      throw BadInput(fmt::format("rows {}:{}: expected A:B with 0 <= A <= B <= T={}", rows->first,
                                 rows->second, problem.tokens));
    for (const auto& [name, shape] : output_shapes(problem, declaration_))
      if (name == "o" || !request.rows)
        result_.tensors[name] = empty_oracle_tensor(shape, request.magnitude, request.exact);
  }

  OracleResult evaluate() {
    const std::vector<Slot> list = slots_of_rows(problem_, request_.rows);
    threads_each_ = std::max(1, request_.threads / std::max(1, static_cast<int>(list.size())));
    std::vector<int> bits(list.size(), 0);
    for_each_parallel(static_cast<Index>(list.size()), request_.threads, [&](Index i) {
      bits[static_cast<std::size_t>(i)] = evaluate_slot(list[static_cast<std::size_t>(i)]);
    });
    result_.bits = list.empty() && !request_.exact ? request_.bits.value_or(first_bits) : 0;
    for (int used : bits) result_.bits = std::max(result_.bits, used);
    name_method(bits);
    if (declaration_.level_scales && !request_.rows) result_.final_position = final_positions(problem_);
    if (request_.rows) keep_rows(result_.tensors.at("o"));
    return std::move(result_);
  }

 private:
  void name_method(const std::vector<int>& bits) {
    const auto some = [&](int method) { return std::ranges::find(bits, method) != bits.end(); };
    const std::string intervals = result_.bits > 0 ? fmt::format("mpfi-{}", result_.bits) : "";
    std::string& method = result_.method;
    if (some(double_bits)) method = "double", result_.bits = std::max(result_.bits, 53);
    if (some(double_double_bits)) method = "double-double";
    if (some(engine_bits)) method = "double-double on the GPU";
    if (some(double_double_bits) || some(engine_bits)) result_.bits = std::max(result_.bits, 106);
    if (!intervals.empty()) method += method.empty() ? intervals : " and " + intervals;
    if (request_.exact) method = "exact";
  }

  // The precision used; what it stores belongs to this slot alone.
  int evaluate_slot(const Slot& slot) {
    std::vector<double> denominators;
    int bits = 0;
    if (request_.double_double && request_.rows && !request_.exact)
      if (const int bits = solve_certified(slot); bits != 0) return bits;
    if (request_.exact) {
      solve<Rational>(slot, denominators);
    } else {
      bits = request_.bits.value_or(first_bits);
      while (true) {
        const PrecisionScope precision(bits);
        if (!solve<Interval>(slot, denominators) || request_.bits || bits >= largest_bits) break;
        bits *= 2;
      }
    }
    if (request_.magnitude) store_magnitude(slot, denominators);
    if (disturbed_) mark_reached(slot);
    return bits;
  }

  template <class S, class Visit>
  void visit(const Slot& slot, Solution<S>& solution, Visit&& visit) {
    if (request_.rows) solution.final.moments.clear();
    visit_outputs(problem_, declaration_, slot, solution, levels_, visit);
  }

  // Whether some entry wants more bits.
  template <class S>
  bool solve(const Slot& slot, std::vector<double>& denominators) {
    return take<S>(
        slot,
        static_cast<const Evaluator<S>&>(op_).evaluate(head_of<S>(problem_, declaration_, slot), result_.how),
        denominators);
  }
  // The method, 0 when there is none for this problem.
  int solve_certified(const Slot& slot) {
    if (declaration_.beta) return solve_delta(slot);
    const std::optional<CertifiedRows> rows = certified_rows(declaration_, problem_, slot, threads_each_);
    if (!rows) return 0;
    const PrecisionScope precision(first_bits);
    if (rows->by_engine)
      check_rows(*rows, slot, first_rows_by_intervals(slot, 32), "the GPU's oracle",
                 "nothing can be judged with this device");
    if (problem_.options.normalize)
      store_quotients(slot, *rows);
    else
      store_rows(slot, *rows);
    if (disturbed_) mark_reached(slot);
    return rows->by_engine ? engine_bits : double_double_bits;
  }
  // The first rows come from intervals, which are exact where a product of norms is not: at a sum without terms.
  int solve_delta(const Slot& slot) {
    DeltaOptions options;
    options.precision = request_.in_double ? DeltaPrecision::plain : DeltaPrecision::pair;
    options.magnitude = request_.magnitude, options.threads = threads_each_;
    options.engine = certified_engine_for(slot.last - slot.first);
    std::optional<CertifiedRows> rows = certified_delta_rows(declaration_, problem_, slot, options);
    if (!rows) return 0;
    const PrecisionScope scope(first_bits);
    const Index count =
        std::max<Index>(32, (Index{1} << 17) / std::max<Index>(1, problem_.key_dim * problem_.value_dim));
    const Matrix<Interval> first = first_rows_by_intervals(slot, count);
    check_rows(*rows, slot, first, "the recurrence", "no value of it can be believed");
    for (Index i = 0; i < first.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Enclosure value = enclosure_of(first.data()[i]);
      if (value.radius < rows->radius[at])
        rows->high[at] = value.high, rows->low[at] = value.low, rows->radius[at] = value.radius;
    }
    if (!request_.in_double && !is_close(*rows, request_.magnitude)) return 0;
    store_rows(slot, *rows);
    if (disturbed_) mark_reached(slot);
    return rows->by_engine ? engine_bits : request_.in_double ? double_bits : double_double_bits;
  }
  // As they are: high is the double next to high + low.
  void store_rows(const Slot& slot, const CertifiedRows& rows) {
    Solution<double> places{Matrix<double>(rows.rows, rows.columns), {}};
    for (Index i = 0; i < places.o.size(); ++i) places.o.data()[i] = static_cast<double>(i);
    OracleTensor& tensor = result_.tensors.at("o");
    visit(slot, places, [&](const std::string& name, Index flat, double place) {
      const auto from = static_cast<std::size_t>(place), to = static_cast<std::size_t>(flat);
      tensor.value[to] = rows.high[from], tensor.low[to] = rows.low[from];
      tensor.radius[to] = rows.radius[from];
      if (request_.magnitude) put_magnitude(name, flat, rows.magnitude[from]);
    });
  }
  void store_quotients(const Slot& slot, const CertifiedRows& table) {
    const CertifiedRows* const rows = &table;
    Solution<Interval> solution{zeros<Interval>(rows->rows, rows->columns), {}};
    Matrix<Magnitude> terms(rows->rows, rows->columns);
    for (Index i = 0; i < terms.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      solution.o.data()[i] = interval_around(rows->high[at], rows->low[at], rows->radius[at]);
      terms.data()[i] = Magnitude(rows->magnitude[at]);
    }
    std::vector<double> denominators;
    take<Interval>(slot, std::move(solution), denominators);
    if (request_.magnitude) store_terms(slot, {std::move(terms), {}}, denominators);
  }
  Matrix<Interval> first_rows_by_intervals(const Slot& slot, Index count) const {
    Slot head = slot;
    head.last = std::min(slot.last, slot.first + count);
    return static_cast<const Evaluator<Interval>&>(op_)
        .evaluate(head_of<Interval>(problem_, declaration_, head), result_.how)
        .o;
  }
  // Certified rows are believed after the first of them agree with interval arithmetic.
  void check_rows(const CertifiedRows& rows, const Slot& slot, const Matrix<Interval>& o,
                  std::string_view whose, std::string_view so) const {
    for (Index i = 0; i < o.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Interval apart = o.data()[i] - interval_around(rows.high[at], rows.low[at], rows.radius[at]);
      if (!contains(apart, 0))
        throw std::runtime_error(
            fmt::format("{} and interval arithmetic contradict each other at token {} of head {} of {}: {}",
                        whose, slot.first + i / o.cols(), slot.head, declaration_.name, so));
    }
  }
  template <class S>
  bool take(const Slot& slot, Solution<S> solution, std::vector<double>& denominators) {
    denominators.clear();
    if (problem_.options.normalize)
      for (Index t = 0; t < solution.o.rows(); ++t)
        denominators.push_back(std::abs(
            approximate(S(solution.o(t, problem_.value_dim) + scalar_of<S>(problem_.options.epsilon)))));
    const std::vector<bool> undefined = divide_out(problem_, solution.o);
    bool wanting = false;
    visit(slot, solution, [&](const std::string& name, Index flat, const S& value) {
      OracleTensor& tensor = result_.tensors.at(name);
      if (name == "o" && undefined[static_cast<std::size_t>(token_of(flat) - slot.first)])
        return store_nan(tensor, flat);
      store(tensor, flat, value);
      wanting |= wants_more_bits(tensor, flat, request_.relative_bits);
    });
    return wanting;
  }
  Index token_of(Index flat) const { return flat / (problem_.heads * problem_.value_dim) % problem_.tokens; }

  // Sums beyond the range of a double are infinite; where such a sum met a zero or another infinity on its way, infinity
  // is still a bound, and NaN would be none.
  void put_magnitude(const std::string& name, Index flat, double value) {
    OracleTensor& tensor = result_.tensors.at(name);
    const auto at = static_cast<std::size_t>(flat);
    tensor.magnitude[at] = std::isnan(value) && !std::isnan(tensor.value[at]) ? INFINITY : value;
  }
  void store_magnitude(const Slot& slot, const std::vector<double>& denominators) {
    const auto put = [&](const std::string& name, Index flat, double value) {
      put_magnitude(name, flat, value);
    };
    if (!declaration_.exact) {  // softmax: its terms are its weights times |v|
      Head<double> head = head_of<double>(problem_, declaration_, slot);
      for (Index i = 0; i < head.v.size(); ++i) head.v.data()[i] = std::abs(head.v.data()[i]);
      Solution<double> solution = static_cast<const Evaluator<double>&>(op_).evaluate(head);
      return visit(slot, solution, put);
    }
    store_terms(slot,
                static_cast<const Evaluator<Magnitude>&>(op_).evaluate(
                    head_of<Magnitude>(problem_, declaration_, slot)),
                denominators);
  }
  void store_terms(const Slot& slot, Solution<Magnitude> solution, const std::vector<double>& denominators) {
    if (problem_.options.normalize) solution.o = ratio_magnitude(slot, solution.o, denominators);
    visit(slot, solution, [&](const std::string& name, Index flat, Magnitude value) {
      put_magnitude(name, flat, value.value());
    });
  }
  Matrix<Magnitude> ratio_magnitude(const Slot& slot, const Matrix<Magnitude>& terms,
                                    const std::vector<double>& denominators) const {
    Matrix<Magnitude> ratio(terms.rows(), problem_.value_dim);
    const std::vector<double>& o = result_.tensors.at("o").value;
    const double epsilon = std::abs(nearest_double(problem_.options.epsilon));
    for (Index t = 0; t < ratio.rows(); ++t)
      for (Index c = 0; c < ratio.cols(); ++c) {
        const Index row = (slot.batch * problem_.tokens + slot.first + t) * problem_.heads + slot.head;
        const double value = std::abs(o[static_cast<std::size_t>(row * problem_.value_dim + c)]);
        ratio(t, c) =
            Magnitude((terms(t, c).value() + value * (terms(t, problem_.value_dim).value() + epsilon)) /
                      denominators[static_cast<std::size_t>(t)]);
      }
    return ratio;
  }

  void mark_reached(const Slot& slot) {
    Solution<double> solution = static_cast<const Evaluator<double>&>(op_).evaluate(
        head_of<double>(reach_, declaration_, slot), {Form::stream});
    divide_out(reach_, solution.o);
    visit(slot, solution, [&](const std::string& name, Index flat, double value) {
      if (!std::isnan(value)) return;
      OracleTensor& tensor = result_.tensors.at(name);
      store_nan(tensor, flat);
      if (!tensor.magnitude.empty()) tensor.magnitude[static_cast<std::size_t>(flat)] = value;
    });
  }

  void keep_rows(OracleTensor& o) const {
    for (std::vector<double>* data : {&o.value, &o.low, &o.radius, &o.magnitude})
      *data = kept_rows(*data, o.shape, *request_.rows);
    o.exact = kept_rows(o.exact, o.shape, *request_.rows);
    o.shape[1] = request_.rows->second - request_.rows->first;
  }

  const Operator& op_;
  const Declaration& declaration_;
  const OracleRequest& request_;
  const bool disturbed_;  // there are NaN or infinities in the data
  const Problem finite_, reach_;
  const Problem& problem_;
  const Index levels_;
  int threads_each_ = 1;  // of a slot
  OracleResult result_;
};

}  // namespace

void check_form(const Declaration& declaration, const Problem& problem, const Evaluation& how) {
  const std::string name(form_name(how.form));
  if (!has_form(declaration, how.form))
    throw BadInput(fmt::format("form {}: {} ({}) has none, expected of: {}", name, declaration.name,
                               declaration.variant, form_list(declaration.forms)));
  const bool segmented = how.form == Form::scan || how.form == Form::chunk;
  if (segmented && !declaration.decayed_scan && is_decayed(problem))
    throw BadInput(fmt::format("form {}: {} ({}) has none with decay, expected of: direct, stream", name,
                               declaration.name, declaration.variant));
  if (how.form != Form::chunk) return;
  if (how.chunk < 1) throw BadInput(fmt::format("chunk {}: expected a width of at least 1", how.chunk));
  if (declaration.level_scales && !std::has_single_bit(static_cast<std::uint64_t>(how.chunk)))
    throw BadInput(fmt::format("chunk {}: expected a power of two for {}", how.chunk, declaration.name));
}

void check_rational(const Declaration& declaration, const Problem& problem) {
  if (!declaration.exact)
    throw BadInput(
        fmt::format("precision exact: {} has an exponential, expected an operator of rational operations "
                    "(gates in \"alpha\")",
                    declaration.name));
  if (problem.field("g"))
    throw BadInput("precision exact: field \"g\" enters as exp(g), expected the linear gate in \"alpha\"");
  if (!declaration.unit_scale && !problem.options.scale) query_scale<Rational>(problem, declaration);
}

Evaluation fastest_form(const Declaration& declaration, const Problem& problem) {
  if (has_form(declaration, Form::chunk) && (declaration.decayed_scan || !is_decayed(problem))) {
    const auto direct = std::ranges::find(declaration.algebras, "direct");
    const auto algebra = direct == declaration.algebras.end() ? 0 : direct - declaration.algebras.begin();
    return {Form::chunk, 16, static_cast<int>(algebra)};
  }
  return {has_form(declaration, Form::chunk) ? Form::stream : Form::direct, 0, 0};
}

OracleResult evaluate_oracle(const Operator& op, const Problem& problem, const OracleRequest& request) {
  return Oracle(op, problem, request).evaluate();
}

}  // namespace attest
