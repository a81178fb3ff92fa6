#include "gpu_checks/battery/lattice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <Eigen/Core>
#include <numeric>

#include "gpu_checks/battery/columns.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "reference/forms/batch.hpp"

namespace attest {
namespace {

constexpr double closed_gate = -1024;  // exp() underflows to 0 in every format
// A kernel may sum gates in any order and in the domain of log2, where no closed gate is a short number: up to three
// equal numbers have one sum whatever the order, four may have two.
constexpr Index most_closed = 3;

// Integers up to this size, and their sums by any order, are exact in the format.
double largest_integer(const Format& format) {
  return std::min(power_of_two(std::min(format.precision, 50)), format.max_finite());
}

struct NotCertified {};

// Exact evaluation that ends with NotCertified where anything leaves the integers of the contract.
class Certifier : public Arithmetic<double> {
 public:
  explicit Certifier(const Contract& contract)
      : product_(largest_integer(contract.product)),
        accumulate_(largest_integer(contract.accumulate) / 2),
        intermediate_(largest_integer(contract.intermediate)),
        state_(largest_integer(contract.state)),
        powers_(contract.inverse == InverseMethod::powers) {}

  Matrix<double> product(const Matrix<double>& a, const Matrix<double>& b) override {
    within(a, product_), within(b, product_);
    Matrix<double> sizes = product_of_sizes(a, b);
    within(sizes, accumulate_);
    return is_negative(a) || is_negative(b) ? attest::product(a, b) : sizes;
  }
  Matrix<double> operand(std::string_view, Matrix<double> x) override {
    return within(std::move(x), intermediate_);
  }
  Matrix<double> carry(std::string_view, Matrix<double> x) override { return within(std::move(x), state_); }
  Matrix<double> output(Matrix<double> x) override { return within(std::move(x), accumulate_); }
  Matrix<double> inverse(std::string_view name, const Matrix<double>& n) override {
    Matrix<double> result = Arithmetic<double>::inverse(name, n);
    within(attest::product(absolute(n), absolute(result)), accumulate_);
    within(result, intermediate_);
    if (!powers_) return result;
    Matrix<double> power = identity_matrix<double>(n.rows()) - n;
    for (Index reached = 2; reached < n.rows(); reached *= 2) power = operand(name, product(power, power));
    return result;
  }
  void within(const Matrix<double>& x, double limit) {
    for (Index i = 0; i < x.size(); ++i)
      if (!(std::abs(x.data()[i]) <= limit)) throw NotCertified();
  }
  Matrix<double> within(Matrix<double>&& x, double limit) {
    within(std::as_const(x), limit);
    return std::move(x);
  }
  void final_state(const Matrix<double>& x) { within(x, accumulate_); }

 private:
  // Of integers: in any order the same sums up to 2^53, and beyond them more than any limit.
  static Matrix<double> product_of_sizes(const Matrix<double>& a, const Matrix<double>& b) {
    using Map = Eigen::Map<const Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
    Matrix<double> sizes(a.rows(), b.cols());
    Eigen::Map<Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
        sizes.data(), sizes.rows(), sizes.cols())
        .noalias() =
        Map(a.data(), a.rows(), a.cols()).abs().matrix() * Map(b.data(), b.rows(), b.cols()).abs().matrix();
    return sizes;
  }
  static bool is_negative(const Matrix<double>& x) {
    return std::any_of(x.data(), x.data() + x.size(), [](double entry) { return entry < 0; });
  }
  static Matrix<double> absolute(Matrix<double> x) {
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = std::abs(x.data()[i]);
    return x;
  }
  double product_, accumulate_, intermediate_, state_;
  bool powers_;
};

// Streams and scans that subtract read q^T S C (or q^T SK SQ P) whole before they subtract from it, and their
// products are not the arithmetic's: the largest such read, of final moments and the largest q.
void certify_whole_read(const BatteryContext& context, const Head<double>& head, const State<double>& final,
                        Certifier& certifier) {
  if (context.kernel.how.form == Form::chunk || !context.declaration().name.starts_with("hla")) return;
  Matrix<double> row(1, head.q.cols());
  for (Index t = 0; t < head.tokens(); ++t)
    for (Index a = 0; a < head.q.cols(); ++a) row(0, a) = std::max(row(0, a), std::abs(head.q(t, a)));
  for (const char* name : {"S", "C", "SK", "SQ", "P"})
    if (const auto found = final.moments.find(name); found != final.moments.end())
      row = certifier.product(row, found->second.at(0));
}

bool sizes_fit(const BatteryContext& context, const Problem& of_any_width) try {
  const Narrowed narrowed(of_any_width, context.declaration());
  const Problem& sizes = narrowed.problem();
  Certifier certifier(context.kernel.contract);
  const Evaluator<double>& evaluator = context.op;
  const Evaluation own = context.kernel.how;
  std::vector<Evaluation> forms{{Form::stream, 0, own.algebra}};
  if (own.form != Form::stream) forms.insert(forms.begin(), own);
  for (const Evaluation& how : forms)
    for (const Slot& slot : slots(sizes)) {
      const Head<double> head = head_of<double>(sizes, context.declaration(), slot);
      const Solution<double> solution = evaluator.evaluate(head, how, certifier);
      certifier.output(solution.o);
      for (const auto& [name, levels] : solution.final.moments)
        for (const Matrix<double>& moment : levels) certifier.final_state(moment);
      certify_whole_read(context, head, solution.final, certifier);
    }
  return true;
} catch (const NotCertified&) {
  return false;
}

// By the stream that sizes_fit() looked at.
Tensors stream_outputs(const BatteryContext& context, const Problem& problem) {
  Arithmetic<double> exact;
  const Narrowed narrowed(problem, context.declaration());
  return narrowed.widened(
      run<double>(context.op, narrowed.problem(), {Form::stream, 0, context.kernel.how.algebra}, exact));
}

// Token numbers within [first, last): the edges of chunks of the width, and others.
std::vector<Index> active_tokens(Index first, Index last, Index width, Index count, Random& random) {
  std::vector<Index> chosen;
  const Index tokens = last - first;
  for (Index i = 0; i < count && tokens > 0; ++i) {
    Index t = static_cast<Index>(random.below(static_cast<std::uint64_t>(tokens)));
    if (i % 2 == 0) {
      const Index chunk = static_cast<Index>(random.below(static_cast<std::uint64_t>(tokens / width + 1)));
      t = std::clamp<Index>(chunk * width + static_cast<Index>(random.below(3)) - 1, 0, tokens - 1);
    }
    if (i == 0) t = 0;
    if (i == 2) t = tokens - 1;
    chosen.push_back(first + t);
  }
  return chosen;
}

class Drawer {
 public:
  Drawer(const BatteryContext& context, Problem& problem, Random& random, Index active)
      : context_(context), problem_(problem), random_(random), active_(active) {}

  void draw() {
    const Declaration& d = context_.declaration();
    shared_ = some_columns(6);
    for (auto& [name, tensor] : problem_.fields) std::fill(tensor.data.begin(), tensor.data.end(), 0.0);
    if (d.beta)
      delta();
    else
      polynomial();
    if (Tensor* g = field("g")) close_gates(context_, *g, 24, random_);
    if (Tensor* scales = field("level_scales")) {
      constexpr double values[] = {1, 0, -1, 2, 1, -1};
      for (double& x : scales->data) x = values[random_.below(6)];
    }
  }

 private:
  Tensor* field(const char* name) {
    const auto found = problem_.fields.find(name);
    return found == problem_.fields.end() ? nullptr : &found->second;
  }
  Index below(Index n) { return static_cast<Index>(random_.below(static_cast<std::uint64_t>(n))); }
  double* row(Tensor& tensor, Index b, Index t, Index h) {
    return tensor.data.data() + ((b * tensor.shape[1] + t) * tensor.shape[2] + h) * tensor.shape[3];
  }
  // All columns of q and k, or so many of them at random.
  std::vector<Index> some_columns(Index count) {
    std::vector<Index> columns(static_cast<std::size_t>(problem_.key_dim));
    std::iota(columns.begin(), columns.end(), Index{0});
    if (problem_.key_dim <= count) return columns;
    for (Index i = 0; i < count; ++i)
      std::swap(columns[static_cast<std::size_t>(i)],
                columns[static_cast<std::size_t>(i + below(problem_.key_dim - i))]);
    columns.resize(static_cast<std::size_t>(count));
    return columns;
  }
  void hot(double* x, Index columns, Index count) {
    for (Index i = 0; i < count; ++i) x[below(columns)] = random_.sign();
  }
  void hot_shared(double* x, Index count) {
    for (Index i = 0; i < count; ++i)
      x[shared_[static_cast<std::size_t>(below(static_cast<Index>(shared_.size())))]] = random_.sign();
  }
  template <class F>
  void each_row(const char* name, F&& f) {
    Tensor& tensor = problem_.fields.at(name);
    for (Index b = 0; b < tensor.shape[0]; ++b)
      for (Index t = 0; t < tensor.shape[1]; ++t)
        for (Index h = 0; h < tensor.shape[2]; ++h) f(b, t, row(tensor, b, t, h));
  }
  void polynomial() {
    std::vector<std::vector<bool>> active(static_cast<std::size_t>(problem_.batch));
    for (auto& list : active) list.assign(static_cast<std::size_t>(problem_.tokens), false);
    for (Index s = 0; s < problem_.sequences(); ++s) {
      const bool packed = !problem_.cu_seqlens.empty();
      const Index b = packed ? 0 : s, first = packed ? problem_.cu_seqlens[static_cast<std::size_t>(s)] : 0;
      const Index last = packed ? problem_.cu_seqlens[static_cast<std::size_t>(s) + 1] : problem_.tokens;
      for (const Index t : active_tokens(first, last, context_.chunk(), active_, random_))
        active[static_cast<std::size_t>(b)][static_cast<std::size_t>(t)] = true;
    }
    const auto is_active = [&](Index b, Index t) {
      return active[static_cast<std::size_t>(b)][static_cast<std::size_t>(t)];
    };
    each_row("k", [&](Index b, Index t, double* x) {
      if (is_active(b, t)) hot_shared(x, 3);
    });
    each_row("q", [&](Index b, Index t, double* x) { hot_shared(x, is_active(b, t) ? 3 : 2); });
    each_row("v", [&](Index b, Index t, double* x) {
      if (is_active(b, t)) hot(x, problem_.value_dim, 6);
    });
  }
  // All columns, or of sixteen ranges of them one each, the last one of all among them.
  std::vector<Index> columns_everywhere() {
    const Index width = problem_.key_dim, count = std::min<Index>(width, 16);
    std::vector<Index> columns(static_cast<std::size_t>(count));
    std::iota(columns.begin(), columns.end(), Index{0});
    if (count == width) return columns;
    for (Index& c : columns) {
      const Index first = c * width / count, last = (c + 1) * width / count;
      c = last == width ? width - 1 : first + below(last - first);
    }
    return columns;
  }
  void delta() {
    const std::vector<Index> columns = columns_everywhere();
    const Index count = std::ssize(columns);
    const auto column = [&](Index i) { return columns[static_cast<std::size_t>(i)]; };
    each_row("k", [&](Index, Index, double* x) {
      const Index a = below(count);
      x[column(a)] = random_.sign();
      if (count > 1) x[column((a + 1 + below(count - 1)) % count)] = random_.sign();
    });
    each_row("q", [&](Index, Index, double* x) {
      for (int i = 0; i < 2; ++i) x[column(below(count))] = random_.sign();
    });
    const auto sparsity = static_cast<std::uint64_t>(std::max<Index>(2, 144 / std::max<Index>(active_, 1)));
    each_row("v", [&](Index, Index, double* x) {
      if (random_.one_in(sparsity)) hot(x, problem_.value_dim, 1);
    });
    for (double& x : problem_.fields.at("beta").data) x = random_.one_in(4) ? 0.0 : 1.0;
  }

  const BatteryContext& context_;
  Problem& problem_;
  Random& random_;
  Index active_;
  std::vector<Index> shared_;
};

}  // namespace

void close_gates(const BatteryContext& context, Tensor& g, std::uint64_t one_in, Random& random) {
  const Kernel& kernel = context.kernel;
  const bool all = kernel.how.form == Form::direct || kernel.contract.gate_scope == GateScope::global;
  const Index heads = g.shape[2], tokens = g.shape[1], window = all ? tokens : context.chunk();
  std::fill(g.data.begin(), g.data.end(), 0.0);
  if (!admits(kernel.limits, "g", closed_gate)) return;
  for (Index row = 0; row < g.shape[0] * heads; ++row) {
    std::vector<Index> closed;
    for (Index t = 0; t < tokens; ++t) {
      const auto last = static_cast<std::ptrdiff_t>(closed.size()) - most_closed;
      const bool full = last >= 0 && t - closed[static_cast<std::size_t>(last)] < window;
      const bool border = t > 0 && t % 64 == 0;  // of the usual tiles, whatever the form says
      const bool close = random.one_in(border ? 3 : one_in) && !full;
      g.data[static_cast<std::size_t>(((row / heads) * tokens + t) * heads + row % heads)] =
          close ? closed_gate : 0.0;
      if (close) closed.push_back(t);
    }
  }
}

std::string no_lattice(const BatteryContext& context) {
  const Declaration& d = context.declaration();
  return d.exact ? "" : d.name + " is no polynomial: no input makes every rounding exact";
}

Problem by_size(const Declaration& declaration, Problem problem) {
  if (declaration.beta) return problem;
  if (problem.options.scale && *problem.options.scale < 0) problem.options.scale = -*problem.options.scale;
  for (auto& [name, tensor] : problem.fields)
    if (name == "q" || name == "k" || name == "v" || name == "level_scales" ||
        name.starts_with("initial_state."))
      for (double& x : tensor.data) x = std::abs(x);
  return problem;
}

bool is_certified(const BatteryContext& context, const Problem& problem) {
  return sizes_fit(context, by_size(context.declaration(), problem));
}

bool is_certified(const BatteryContext& context, const Problem& problem, LatticeCut cut) {
  const Declaration& declaration = context.declaration();
  const Problem sizes = by_size(declaration, problem), first = token_range(sizes, 0, cut.at);
  const std::vector<Index> consumed(static_cast<std::size_t>(problem.sequences()), cut.at);
  const Problem rest = continued_from(token_range(sizes, cut.at, problem.tokens),
                                      stream_outputs(context, first), declaration, consumed);
  return (!cut.run_first || sizes_fit(context, first)) && sizes_fit(context, rest);
}

std::optional<Problem> draw_lattice(const BatteryContext& context, const Case& shape, Random& random,
                                    std::optional<LatticeCut> cut, Index most_active) {
  const Declaration& declaration = context.declaration();
  Case form = shape;
  form.op = declaration.name, form.variant = declaration.variant, form.recipe = "uniform",
  form.gates = "none";  // values that are replaced below
  if (declaration.decay) form.options.decay = Rational(1);
  Problem problem = draw_problem(form, declaration);
  const bool first_order = declaration.degree_q <= 1 && !declaration.beta;
  Index active = first_order ? std::max<Index>(12, problem.tokens / 4) : 12;
  active = std::min(active, most_active);
  for (int attempt = 0; attempt < 10; ++attempt, active = std::max<Index>(1, active * 3 / 4)) {
    Drawer(context, problem, random, active).draw();
    if (is_certified(context, problem) && (!cut || is_certified(context, problem, *cut))) return problem;
  }
  return std::nullopt;
}

// Whether a kernel behind a door, which gets its inputs in the formats of the contract, sees these very numbers.
static bool holds_inputs(const Contract& contract, const Problem& problem) {
  const Problem rounded = round_inputs(contract, problem);
  return std::ranges::all_of(problem.fields, [&](const auto& field) {
    return rounded.fields.at(field.first).data == field.second.data;
  });
}

Problem made_louder(const BatteryContext& context, Problem problem, Random& random) {
  const Tensor k = problem.fields.at("k");  // problem itself is replaced below
  const auto has_key = [&](Index row) {     // of any head, at the token of a batch entry
    const Index width = k.shape[2] * k.shape[3];
    const auto first = k.data.begin() + row * width;
    return std::any_of(first, first + width, [](double x) { return x != 0; });
  };
  const std::uint64_t order = random.below(2);
  for (const char* field : {order ? "v" : "q", order ? "q" : "v"})
    for (const std::uint64_t largest : {4093, 1021, 255, 127, 51, 21, 11, 5, 3}) {
      Problem louder = problem;
      Tensor& x = louder.fields.at(field);
      const Index width = x.shape[3], rows = x.shape[0] * x.shape[1] * x.shape[2];
      for (Index row = 0; row < rows; ++row) {
        const double factor = static_cast<double>(2 * random.below((largest + 1) / 2) + 1);
        const bool reads_alone = context.declaration().beta || !has_key(row / x.shape[2]);
        if (*field == 'q' && !reads_alone) continue;
        for (Index c = 0; c < width; ++c) x.data[static_cast<std::size_t>(row * width + c)] *= factor;
      }
      if (!holds_inputs(context.kernel.contract, louder) || !is_certified(context, louder)) continue;
      problem = std::move(louder);
      break;
    }
  return problem;
}

Tensors lattice_outputs(const BatteryContext& context, const Problem& problem) {
  Tensors exact = stream_outputs(context, problem);
  const Contract& contract = context.kernel.contract;
  for (auto& [name, tensor] : exact)
    for (double& x : tensor.data) x = round_to(name == "o" ? contract.output : contract.state, x);
  return exact;
}

}  // namespace attest
