#include "proofs/engine.hpp"

#include <rapidcheck/Gen.h>
#include <rapidcheck/Random.h>
#include <rapidcheck/seq/Create.h>
#include <rapidcheck/shrinkable/Create.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace attest {
namespace {

// An instance over Q: for every entry of every field its rank in the list of values below, simplest first. Shrinking
// lowers ranks.
using Ranks = std::vector<int>;

Rational value_of(Domain domain, int rank) {
  static const std::vector<Rational> reals = {0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5};
  static const std::vector<Rational> gates = {Rational(1),    Rational(1, 2), Rational(1, 3), Rational(2, 3),
                                              Rational(1, 4), Rational(3, 4), Rational(1, 5)};
  const auto& values = domain == Domain::real ? reals : gates;
  return values[static_cast<std::size_t>(rank) % values.size()];
}
constexpr int most_ranks(Domain domain) { return domain == Domain::real ? 11 : 7; }

Inputs<Rational> rational_inputs(const Fields& fields, const Ranks& ranks) {
  Inputs<Rational> inputs;
  std::size_t next = 0;
  for (const Field& field : fields) {
    Matrix<Rational> value(field.rows, field.cols);
    for (Index i = 0; i < value.size(); ++i) value.data()[i] = value_of(field.domain, ranks[next++]);
    inputs.put(field.name) = value;
  }
  return inputs;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64, Steele et al. 2014
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t seed_of(std::uint64_t seed, const std::string& name, const Shape& shape,
                      std::uint64_t instance) {
  std::uint64_t state = mix(seed);
  for (const char c : name) state = mix(state ^ static_cast<unsigned char>(c));
  for (const Index axis : {shape.tokens, shape.key_dim, shape.value_dim, shape.position})
    state = mix(state ^ static_cast<std::uint64_t>(axis));
  return mix(state ^ instance);
}

// Uniform residues: 61 bits, the one value that is no residue rejected.
Inputs<PrimeField> field_inputs(const Fields& fields, std::uint64_t seed) {
  Inputs<PrimeField> inputs;
  std::uint64_t counter = 0;
  auto draw = [&] {
    for (;;)
      if (const std::uint64_t bits = mix(seed + 0x632be59bd9b4e019u * ++counter) >> 3;
          bits != PrimeField::modulus)
        return PrimeField::from_residue(bits);
  };
  for (const Field& field : fields) {
    Matrix<PrimeField> value(field.rows, field.cols);
    for (Index i = 0; i < value.size(); ++i) value.data()[i] = draw();
    inputs.put(field.name) = value;
  }
  return inputs;
}

// Ranks drawn by RapidCheck, small and sparse or larger by `size`, shrunk entry by entry to the simplest value.
rc::Gen<Ranks> ranks_for(const Fields& fields) {
  std::vector<Domain> domains;
  for (const Field& field : fields)
    domains.insert(domains.end(), static_cast<std::size_t>(field.rows * field.cols), field.domain);
  return rc::Gen<Ranks>([domains](const rc::Random& random, int size) {
    rc::Random source(random);
    Ranks ranks;
    for (const Domain domain : domains) {
      const auto span = static_cast<std::uint64_t>(std::min(most_ranks(domain), 2 + size));
      ranks.push_back(static_cast<int>(source.next() % span));
    }
    return rc::shrinkable::shrinkRecur(std::move(ranks), [](const Ranks& from) {
      std::vector<Ranks> simpler;
      for (std::size_t i = 0; i < from.size(); ++i)
        for (int rank = 0; rank < from[i]; ++rank) {
          simpler.push_back(from);
          simpler.back()[i] = rank;
        }
      return rc::seq::fromContainer(std::move(simpler));
    });
  });
}

class Search {
 public:
  Search(const Statement& statement, const std::string& name, const EngineOptions& options,
         const Shape& shape)
      : statement_(statement),
        shape_(shape),
        fields_(statement.fields(shape)),
        generator_(ranks_for(fields_)),
        random_(seed_of(options.seed, name, shape, 0x51)) {}

  // The place of the first comparison whose sides differ: outputs stand before normalisers and states.
  std::optional<std::size_t> first_failure(const Ranks& ranks) const {
    const auto comparisons = statement_.over_rational(shape_, rational_inputs(fields_, ranks));
    for (std::size_t i = 0; i < comparisons.size(); ++i)
      if (!(comparisons[i].left == comparisons[i].right)) return i;
    return std::nullopt;
  }
  bool fails(const Ranks& ranks) const { return first_failure(ranks).has_value(); }
  bool some_instance_fails(int instances, std::int64_t& count) {
    for (int i = 0; i < instances; ++i, ++count)
      if (fails(generator_(random_.split(), i % 9).value())) return true;
    return false;
  }
  // The simplest of several shrunk counterexamples.
  std::optional<Counterexample> smallest(std::int64_t& count) {
    std::optional<Ranks> best;
    std::size_t place = 0;  // of the comparison that `best` refutes
    int found = 0;
    for (int i = 0; i < 4000 && found < 12; ++i, ++count) {
      auto candidate = generator_(random_.split(), i % 9);
      const auto failure = first_failure(candidate.value());
      if (!failure) continue;
      ++found;
      const Ranks shrunk = shrink(std::move(candidate), *failure);
      if (best && std::pair(*failure, cost(shrunk)) >= std::pair(place, cost(*best))) continue;
      best = shrunk, place = *failure;
    }
    if (!best) return std::nullopt;
    const Inputs<Rational> inputs = rational_inputs(fields_, *best);
    Counterexample result{shape_, inputs, *first_difference(statement_.over_rational(shape_, inputs))};
    locate(result);
    return result;
  }

 private:
  // Shrinks while a comparison at `place` or before it still differs: an output that is wrong is not shrunk away
  // to a normaliser that is.
  Ranks shrink(rc::Shrinkable<Ranks> current, std::size_t place) const {
    for (bool again = true; again;) {
      again = false;
      auto simpler = current.shrinks();
      while (auto next = simpler.next())
        if (first_failure(next->value()).value_or(place + 1) <= place) {
          current = std::move(*next);
          again = true;
          break;
        }
    }
    return current.value();
  }
  static std::tuple<int, int, Ranks> cost(const Ranks& ranks) {
    int sum = 0, nonzero = 0;
    for (const int rank : ranks) sum += rank, nonzero += rank != 0;
    return {nonzero, sum, ranks};
  }
  static void locate(Counterexample& c) {
    const auto &left = c.difference.left, &right = c.difference.right;
    if (left.rows() != right.rows() || left.cols() != right.cols()) return;
    for (Index i = 0; i < left.size(); ++i)
      if (left.data()[i] != right.data()[i]) {
        c.row = i / left.cols(), c.column = i % left.cols();
        return;
      }
  }

  const Statement& statement_;
  Shape shape_;
  Fields fields_;
  rc::Gen<Ranks> generator_;
  rc::Random random_;
};

// The degree at the widest shape of each token count bounds the narrower ones: a narrow instance is a wide one with
// zeros in it.
std::map<Index, Index> degrees_by_tokens(const Statement& statement) {
  std::map<Index, Shape> widest;
  for (const Shape& shape : statement.shapes) {
    Shape& wide = widest.try_emplace(shape.tokens, shape).first->second;
    wide.key_dim = std::max(wide.key_dim, shape.key_dim),
    wide.value_dim = std::max(wide.value_dim, shape.value_dim);
    wide.position = std::max(wide.position, shape.position);
  }
  std::map<Index, Index> degrees;
  for (const auto& [tokens, shape] : widest) degrees[tokens] = statement.degree(shape);
  return degrees;
}

void widen(Decision& decision, const Shape& shape) {
  if (decision.shapes++ == 0) decision.smallest = decision.largest = shape;
  auto stretch = [&](Index Shape::*axis) {
    decision.smallest.*axis = std::min(decision.smallest.*axis, shape.*axis);
    decision.largest.*axis = std::max(decision.largest.*axis, shape.*axis);
  };
  stretch(&Shape::tokens), stretch(&Shape::key_dim), stretch(&Shape::value_dim), stretch(&Shape::position);
}

constexpr double log2_modulus = 60.99999999999999;  // rounded down: p = 2^61 - 1
constexpr double log2_target = -100;

double log2_failure(Index degree, int instances) {
  if (degree == 0) return -std::numeric_limits<double>::infinity();
  return instances * (std::log2(static_cast<double>(degree)) - log2_modulus);
}

}  // namespace

const char* claim_verdict_name(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::holds     ? "holds"
         : verdict == ClaimVerdict::refuted ? "refuted"
                                            : "undecided";
}

Decision decide(const Statement& statement, const std::string& name, const EngineOptions& options) {
  Decision decision;
  const auto degrees = degrees_by_tokens(statement);
  decision.log2_failure = -std::numeric_limits<double>::infinity();
  for (const Shape& shape : statement.shapes) {
    widen(decision, shape);
    const Fields fields = statement.fields(shape);
    const Index degree = degrees.at(shape.tokens);
    Index entries = 0;
    for (const Field& field : fields) entries += field.rows * field.cols;
    int instances = entries == 0 ? 1 : std::max(2, options.trials);
    while (log2_failure(degree, instances) > log2_target) ++instances;
    bool falls = false;
    for (int i = 0; i < instances && !falls; ++i, ++decision.field_instances) {
      const auto inputs =
          field_inputs(fields, seed_of(options.seed, name, shape, static_cast<std::uint64_t>(i)));
      falls = first_difference(statement.over_field(shape, inputs)).has_value();
    }
    decision.total_degree = std::max(decision.total_degree, degree);
    decision.instances_per_shape = std::max(decision.instances_per_shape, instances);
    if (entries != 0)
      decision.log2_failure = std::max(decision.log2_failure, log2_failure(degree, instances));
    const bool small = shape.tokens <= 5 && shape.key_dim <= 2 && shape.value_dim <= 2;
    Search search(statement, name, options, shape);
    if (!falls && (small || entries == 0))
      falls = search.some_instance_fails(entries == 0 ? 1 : 4, decision.rational_instances);
    if (!falls) continue;
    decision.counterexample = search.smallest(decision.rational_instances);
    decision.verdict = decision.counterexample ? ClaimVerdict::refuted : ClaimVerdict::undecided;
    return decision;
  }
  decision.verdict = decision.shapes > 0 ? ClaimVerdict::holds : ClaimVerdict::undecided;
  return decision;
}

}  // namespace attest
