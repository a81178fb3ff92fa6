// Counterexamples of the ledger's file, evaluated again by plain loops over vectors of rationals that share nothing with
// the definitions the ledger used.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proofs/ledger.hpp"

namespace attest {
namespace {

using Rows = std::vector<std::vector<Rational>>;

Rows rows_of(const nlohmann::ordered_json& json) {
  Rows rows;
  for (const auto& row : json) {
    rows.emplace_back();
    for (const auto& entry : row) rows.back().push_back(*parse_rational(entry.get<std::string>()));
  }
  return rows;
}
Rational dot_of(const std::vector<Rational>& a, const std::vector<Rational>& b) {
  Rational sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
Rational raised(const Rational& base, int exponent) {
  Rational result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  for (int i = 0; i > exponent; --i) result /= base;
  return result;
}

struct Instance {
  Rows q, k, v;
  Rational gamma = 1;
  int tokens = 0;
  Rows left, right;
  bool numerator = true;
};
Instance counterexample(const std::string& id) {
  LedgerOptions options;
  options.seed = 42;
  const auto evidence = ledger_json(decide_claims(claims_matching(id), options), 42)["claims"][0]["evidence"];
  EXPECT_EQ(evidence["field"], "Q");
  Instance c{rows_of(evidence["inputs"]["q"]), rows_of(evidence["inputs"]["k"]),
             rows_of(evidence["inputs"]["v"]), 1,
             evidence["shape"]["tokens"],      rows_of(evidence["left"]),
             rows_of(evidence["right"]),       true};
  if (evidence["inputs"].contains("decay")) c.gamma = rows_of(evidence["inputs"]["decay"])[0][0];
  c.numerator = evidence["compared"].get<std::string>().find("numerator") != std::string::npos;
  return c;
}
// sum of weight(t, i, u, j) * value over index tuples of order two or three, as rows; the normaliser has v := 1.
template <class W>
Rows sum_of(const Instance& c, W weight) {
  Rows rows;
  for (int t = 0; t < c.tokens; ++t) {
    rows.emplace_back(c.numerator ? c.v[0].size() : 1, Rational(0));
    for (int i = 0; i <= t; ++i)
      for (int j = 0; j <= t; ++j)
        for (std::size_t e = 0; e < rows.back().size(); ++e)
          rows.back()[e] += weight(t, i, j) * (c.numerator ? c.v[j][e] : Rational(1));
  }
  return rows;
}

TEST(Counterexample, TheDecayedStreamOfSection43IsNotTheMaskedOperator) {
  const Instance c = counterexample("hla.sec4.3");
  auto pair = [&](int t, int i, int j) { return dot_of(c.q[t], c.k[i]) * dot_of(c.q[j], c.k[i]); };
  const Rows printed = sum_of(c, [&](int t, int i, int j) -> Rational {
    return (raised(c.gamma, 2 * t - i - j) - (j < i ? raised(c.gamma, t - 1 - j) : Rational(0))) *
           pair(t, i, j);
  });
  const Rows masked = sum_of(c, [&](int t, int i, int j) -> Rational {
    return i <= j ? Rational(raised(c.gamma, 2 * t - i - j) * pair(t, i, j)) : Rational(0);
  });
  EXPECT_EQ(c.left, printed);
  EXPECT_EQ(c.right, masked);
  EXPECT_NE(printed, masked);
}

TEST(Counterexample, Figure1cLosesThePairsThatCrossTheChunk) {
  const Instance c = counterexample("hla.fig1c");
  ASSERT_EQ(c.tokens, 2);  // so that the chunk has width 1
  auto pair = [&](int t, int i, int j) { return dot_of(c.q[t], c.k[i]) * dot_of(c.q[j], c.k[i]); };
  const Rows printed = sum_of(c, [&](int t, int i, int j) -> Rational {
    return i <= j && !(i < t && j == t) ? pair(t, i, j) : Rational(0);
  });
  const Rows masked =
      sum_of(c, [&](int t, int i, int j) -> Rational { return i <= j ? pair(t, i, j) : Rational(0); });
  EXPECT_EQ(c.left, printed);
  EXPECT_EQ(c.right, masked);
  EXPECT_NE(printed, masked);
}

TEST(Counterexample, Figure2cLosesTheTokenItself) {
  const Instance c = counterexample("ahla.fig2c");
  ASSERT_EQ(c.tokens, 2);
  auto pair = [&](int t, int i, int j) { return dot_of(c.q[t], c.k[i]) * dot_of(c.q[i], c.k[j]); };
  const Rows printed = sum_of(c, [&](int t, int i, int j) -> Rational {
    return j <= i && !(i == t && j < t) ? pair(t, i, j) : Rational(0);
  });
  const Rows masked =
      sum_of(c, [&](int t, int i, int j) -> Rational { return j <= i ? pair(t, i, j) : Rational(0); });
  EXPECT_EQ(c.left, printed);
  EXPECT_EQ(c.right, masked);
  EXPECT_NE(printed, masked);
}

TEST(Counterexample, TheStreamOfTheorem71IsNotTheMaskedOperator) {
  const Instance c = counterexample("hla3.thm7.1");
  auto triples = [&](auto keep) {
    return sum_of(c, [&](int t, int i, int j) -> Rational {
      Rational sum = 0;
      for (int u = 0; u <= t; ++u)
        if (keep(i, u, j)) sum += dot_of(c.q[t], c.k[i]) * dot_of(c.q[u], c.k[i]) * dot_of(c.q[u], c.k[j]);
      return sum;
    });
  };
  const Rows printed = triples([](int i, int u, int j) {
    const int largest = std::max({i, u, j});
    return (i == largest) + (u == largest) + (j == largest) >= 2;
  });
  const Rows masked = triples([](int i, int u, int j) { return i <= u && j <= u; });
  EXPECT_EQ(c.left, printed);
  EXPECT_EQ(c.right, masked);
  EXPECT_NE(printed, masked);
}

// The printed decayed AHLA scan against the stream, scalars only: (R, P, E) with the tree written out for five tokens.
TEST(Counterexample, ThePrintedDecayedAhlaScanIsNotItsStream) {
  const Instance c = counterexample("ahla.op6.2.decay.scan");
  ASSERT_EQ(c.tokens, 5);
  ASSERT_EQ(c.q[0].size(), 1u);
  ASSERT_EQ(c.v[0].size(), 1u);
  struct Segment {
    Rational R, P, E, rho;
  };
  auto join = [](const Segment& a, const Segment& b) {
    return Segment{b.rho * a.R + b.R, b.rho * a.P + b.P, b.rho * a.E + b.E + b.R * b.rho * a.P,
                   a.rho * b.rho};
  };
  std::vector<Segment> token;
  for (int t = 0; t < 5; ++t) {
    const Rational k = c.k[t][0], q = c.q[t][0], v = c.numerator ? c.v[t][0] : Rational(1);
    token.push_back({k * q, k * v, q * k * k * v, c.gamma});
  }
  Rational p = 0, e = 0;
  Rows serial, scanned;
  for (int t = 0; t < 5; ++t) {
    p = c.gamma * p + token[t].P, e = c.gamma * e + c.k[t][0] * c.q[t][0] * p;
    serial.push_back({c.q[t][0] * e});
  }
  const Segment pair01 = join(token[0], token[1]), pair23 = join(token[2], token[3]);
  const Segment before[] = {{0, 0, 0, 1}, token[0], pair01, join(pair01, token[2]), join(pair01, pair23)};
  for (int t = 0; t < 5; ++t) scanned.push_back({c.q[t][0] * join(before[t], token[t]).E});
  EXPECT_EQ(c.right, serial);
  EXPECT_EQ(c.left, scanned);
  EXPECT_NE(serial, scanned);
}

}  // namespace
}  // namespace attest
