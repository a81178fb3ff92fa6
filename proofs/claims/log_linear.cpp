// The published claims about log-linear attention (arXiv 2506.04761 section 3).
#include "proofs/printed/log_linear.hpp"

#include "proofs/counted.hpp"
#include "proofs/ledger.hpp"
#include "proofs/rank.hpp"
#include "proofs/segments.hpp"
#include "reference/operators/delta.hpp"
#include "reference/operators/gated_delta.hpp"
#include "reference/operators/linear.hpp"
#include "reference/operators/log_linear.hpp"
#include "reference/operators/log_linear_gated_delta.hpp"
#include "reference/operators/log_linear_mamba2.hpp"
#include "reference/operators/mamba2.hpp"

namespace attest {
namespace {
using namespace printed;

const std::string paper = "arXiv 2506.04761 section 3";

template <class S>
Matrix<S> integer(Index value) {
  return as_matrix(S(static_cast<int>(value)));
}

// ---- the partition, integers only
template <class F>
Statement integers(const std::string& text, Index max_tokens, F sides) {
  return state(
      text, token_shapes(max_tokens), [](const Shape&) { return Fields{}; }, sides);
}
// An n x n matrix of small integers from f(t, s).
template <class S, class F>
Matrix<S> table(Index n, F f) {
  Matrix<S> m(n, n);
  for (Index t = 0; t < n; ++t)
    for (Index s = 0; s < n; ++s) m(t, s) = S(static_cast<int>(f(t, s)));
  return m;
}
// The cover of [0, t] itself, instead of {t} and the cover of [0, t): another partition.
std::vector<Bucket> inclusive_buckets(Index t) {
  auto buckets = fenwick_buckets(t + 1);
  buckets.erase(buckets.begin());
  return buckets;
}
template <class F>
Statement covered_once(const std::string& text, Index max_tokens, F buckets) {
  return integers(text, max_tokens, [buckets]<class S>(const Shape& shape, const Inputs<S>&) {
    return Comparisons<S>{{"times that s lies in a bucket of t",
                           table<S>(shape.tokens,
                                    [&](Index t, Index s) {
                                      Index times = 0;
                                      for (const Bucket& b : buckets(t)) times += b.first <= s && s < b.last;
                                      return times;
                                    }),
                           table<S>(shape.tokens, [](Index t, Index s) { return s <= t; })}};
  });
}
template <class F>
Statement level_of_bucket(const std::string& text, F buckets, Index shift) {
  return integers(text, 64, [buckets, shift]<class S>(const Shape& shape, const Inputs<S>&) {
    return Comparisons<S>{{"level of the bucket of s against bit_length(t xor s)",
                           table<S>(shape.tokens,
                                    [&](Index t, Index s) {
                                      for (const Bucket& b : buckets(t))
                                        if (b.first <= s && s < b.last) return b.level;
                                      return Index(-1);
                                    }),
                           table<S>(shape.tokens, [&](Index t, Index s) {
                             return s <= t ? pair_level(t + shift, s + shift) : -1;
                           })}};
  });
}
template <class F>
Statement per_token(const std::string& text, const std::string& what, F pair) {
  return integers(text, 64, [what, pair]<class S>(const Shape& shape, const Inputs<S>&) {
    Matrix<S> left(1, shape.tokens), right(1, shape.tokens);
    for (Index t = 0; t < shape.tokens; ++t) {
      const auto [l, r] = pair(shape.tokens, t);
      left(0, t) = S(static_cast<int>(l)), right(0, t) = S(static_cast<int>(r));
    }
    return Comparisons<S>{{what, left, right}};
  });
}

void partition(std::vector<Claim>& list) {
  const auto shifted = [](Index t) {
    auto buckets = fenwick_buckets(t);
    if (buckets.size() > 1) buckets.back().last += 1;
    return buckets;
  };
  list.push_back({"lla.partition.cover",
                  paper,
                  covered_once("the buckets of t are disjoint and cover [0, t]", 64, fenwick_buckets),
                  nullptr,
                  nullptr,
                  {{"a bucket one token longer", covered_once("", 64, shifted)}}});
  list.push_back(
      {"lla.partition.count",
       paper,
       per_token(
           "[0, t] has 1 + popcount(t) buckets", "buckets against 1 + popcount(t)",
           [](Index, Index t) {
             return std::pair<Index, Index>{static_cast<Index>(fenwick_buckets(t).size()), 1 + popcount(t)};
           }),
       nullptr,
       nullptr,
       {{"the cover of [0, t]", per_token("", "buckets", [](Index, Index t) {
           return std::pair<Index, Index>{static_cast<Index>(inclusive_buckets(t).size()), 1 + popcount(t)};
         })}}});
  list.push_back({"lla.partition.level",
                  paper,
                  level_of_bucket("the bucket of s has level bit_length(t xor s)", fenwick_buckets, 0),
                  nullptr,
                  nullptr,
                  {{"positions counted from 1", level_of_bucket("", fenwick_buckets, 1)},
                   {"the cover of [0, t]", level_of_bucket("", inclusive_buckets, 0)}}});
  auto needed = [](Index add) {
    return [add](Index tokens, Index) {
      Index most = 0;
      for (Index t = 0; t < tokens; ++t)
        for (const Bucket& b : fenwick_buckets(t)) most = std::max(most, b.level + 1);
      return std::pair<Index, Index>{most, bit_length(tokens - 1) + add};
    };
  };
  list.push_back({"lla.partition.levels",
                  paper,
                  per_token("a sequence of T tokens needs bit_length(T-1) + 1 levels",
                            "levels used against formula", needed(1)),
                  nullptr,
                  nullptr,
                  {{"one level less", per_token("", "levels", needed(0))}}});
}

// ---- stream, chunk, reduction
Fields log_linear_fields(const Shape& shape, bool alpha, bool beta, bool scales = true) {
  Fields fields = {{"q", shape.tokens, shape.key_dim},
                   {"k", shape.tokens, shape.key_dim},
                   {"v", shape.tokens, shape.value_dim}};
  if (alpha) fields.push_back({"alpha", shape.tokens, 1, Domain::gate});
  if (beta) fields.push_back({"beta", shape.tokens, 1, Domain::gate});
  if (scales) fields.push_back({"level_scales", shape.tokens, levels_for(shape.tokens) + 1});
  return fields;
}
template <class F>
Statement over_heads(const std::string& text, bool alpha, bool beta, bool scales, F sides) {
  return state(
      text, all_shapes(), [=](const Shape& shape) { return log_linear_fields(shape, alpha, beta, scales); },
      [sides]<class S>(const Shape& shape, const Inputs<S>& inputs) { return sides(inputs.head(shape)); });
}
template <class D, class Linear>
void operator_claims(std::vector<Claim>& list, const std::string& name, bool alpha, bool beta) {
  auto streamed = [](MergeRule rule) {
    return [rule]<class S>(const Head<S>& in) {
      return Comparisons<S>{
          {"stream against parallel", log_linear_stream(in, rule), log_linear_parallel(in)}};
    };
  };
  Claim recurrence{
      "lla.recurrence." + name,
      paper,
      over_heads("level-state stream = parallel form, log-linear " + name, alpha, beta, true,
                 streamed(MergeRule::printed)),
      nullptr,
      nullptr,
      {{"merged one level low", over_heads("", alpha, beta, true, streamed(MergeRule::one_level_low))}}};
  if (alpha)
    recurrence.controls.push_back({"token inserted before the transition",
                                   over_heads("", alpha, beta, true, streamed(MergeRule::inject_first))});
  list.push_back(recurrence);

  auto chunked = [](Index shift) {
    return [shift]<class S>(const Head<S>& in) {
      const Matrix<S> parallel = log_linear_parallel(
          in, [shift](Index t, Index s) { return s == t ? Index(0) : pair_level(t + shift, s + shift); });
      Arithmetic<S> exact;
      Comparisons<S> all;
      for (Index width = 1; width <= 2 * std::max<Index>(in.tokens(), 1); width *= 2)
        all.push_back(
            {"chunk " + std::to_string(width) + " against parallel", D::chunk(exact, in, width).o, parallel});
      return all;
    };
  };
  list.push_back(
      {"lla.chunk." + name,
       paper,
       over_heads(
           "chunkwise = parallel form, every power-of-two chunk, T a multiple of it or not, log-linear " +
               name,
           alpha, beta, true, chunked(0)),
       nullptr,
       nullptr,
       {{"levels of positions counted from 1", over_heads("", alpha, beta, true, chunked(1))}}});

  auto reduced = [](int first_scale) {
    return [first_scale]<class S>(Head<S> in) {
      in.level_scales = Matrix<S>(in.tokens(), levels_for(in.tokens()) + 1);
      for (Index i = 0; i < in.level_scales.size(); ++i) in.level_scales.data()[i] = S(1);
      for (Index t = 0; t < in.tokens(); ++t) in.level_scales(t, 1) = S(first_scale);
      Arithmetic<S> exact;
      return Comparisons<S>{{"log-linear parallel against linear-time stream", log_linear_parallel(in),
                             stream<Linear>(exact, in).o},
                            {"log-linear stream against linear-time stream", log_linear_stream(in),
                             stream<Linear>(exact, in).o}};
    };
  };
  list.push_back({"lla.reduce." + name,
                  paper,
                  over_heads("lambda = 1 reduces log-linear " + name + " to its linear-time operator", alpha,
                             beta, false, reduced(1)),
                  nullptr,
                  nullptr,
                  {{"lambda^1 = 2", over_heads("", alpha, beta, false, reduced(2))}}});
}

// ---- ranks of M^H
// Ranks of blocks of the mask: `blocks` lists (rows [t0,t1), columns [s0,s1), the stated rank). No level scales give
// more than the stated rank, and lambda_t^l = (t+2)^l, an explicit instance, attains it.
struct Block {
  Index t0, t1, s0, s1, rank;
};
template <class S>
Index block_rank(const Matrix<S>& mask, const Block& b) {
  return rank(mask.middle_rows(b.t0, b.t1 - b.t0).middle_columns(b.s0, b.s1 - b.s0));
}
template <class F>
Statement ranks(const std::string& text, F blocks, bool only_bound = false) {
  return state(
      text, token_shapes(33),
      [](const Shape& shape) {
        return Fields{{"level_scales", shape.tokens, levels_for(shape.tokens)}};
      },
      [blocks, only_bound]<class S>(const Shape& shape, const Inputs<S>& inputs) {
        Matrix<S> explicit_scales(shape.tokens, levels_for(shape.tokens));
        for (Index t = 0; t < shape.tokens; ++t)
          for (Index l = 0; l < explicit_scales.cols(); ++l)
            explicit_scales(t, l) = power(S(static_cast<int>(t + 2)), l);
        const Matrix<S> any = hierarchical_mask(inputs["level_scales"]),
                        particular = hierarchical_mask(explicit_scales);
        Comparisons<S> all;
        for (const Block& b : blocks(shape.tokens)) {
          const std::string where = " of M^H[" + std::to_string(b.t0) + ":" + std::to_string(b.t1) + ", " +
                                    std::to_string(b.s0) + ":" + std::to_string(b.s1) + "]";
          all.push_back({"rank" + where + " above the stated one",
                         integer<S>(std::max<Index>(block_rank(any, b) - b.rank, 0)), integer<S>(0)});
          if (!only_bound)
            all.push_back({"rank" + where + " at lambda_t^l = (t+2)^l", integer<S>(block_rank(particular, b)),
                           integer<S>(b.rank)});
        }
        return all;
      },
      [](const Shape& shape) { return std::max<Index>(shape.tokens, 1); });  // a minor
}
std::vector<Block> dyadic_blocks(Index tokens, Index stated) {
  std::vector<Block> blocks;
  for (Index size = 1; size < tokens; size *= 2)
    for (Index start = size; start < tokens; start += 2 * size)
      blocks.push_back({start, std::min(start + size, tokens), start - size, start, stated});
  return blocks;
}
std::vector<Block> key_blocks(Index tokens, Index stated) {
  std::vector<Block> blocks;
  for (Index size = 1; size < tokens; size *= 2)
    for (Index start = 0; start + size < tokens; start += size)
      blocks.push_back({start + size, tokens, start, start + size, stated});
  return blocks;
}
template <class F>
std::vector<Block> query_blocks(Index tokens, F stated) {
  std::vector<Block> blocks;
  for (Index size = 1; size < tokens; size *= 2)
    for (Index start = size; start + size <= tokens; start += size)
      blocks.push_back({start, start + size, 0, start, stated(size, start / size)});
  return blocks;
}
Index generic_query_rank(Index size, Index place) { return std::min(size, popcount(place)); }
void rank_claims(std::vector<Claim>& list) {
  const std::string source = paper + ", M^H is quasi-hierarchical and not H^2";
  auto dyadic = [](Index stated) { return [stated](Index n) { return dyadic_blocks(n, stated); }; };
  auto keys = [](Index stated) { return [stated](Index n) { return key_blocks(n, stated); }; };
  auto queries = [](auto stated) { return [stated](Index n) { return query_blocks(n, stated); }; };
  list.push_back({"lla.rank.block",
                  source,
                  ranks("every dyadic off-diagonal block of M^H has rank 1", dyadic(1)),
                  nullptr,
                  nullptr,
                  {{"rank 0", ranks("", dyadic(0))}}});
  list.push_back(
      {"lla.rank.key",
       source,
       ranks("key side: M^H[everything after, tau] has rank 1 for every aligned dyadic tau (nested)",
             keys(1)),
       nullptr,
       nullptr,
       {{"rank 0", ranks("", keys(0))}}});
  list.push_back({"lla.rank.query",
                  source,
                  ranks("query side: M^H[tau, everything before] has rank min(2^b, popcount(a / 2^b)) for "
                        "aligned tau = [a, a + 2^b), generically",
                        queries(generic_query_rank)),
                  nullptr,
                  nullptr,
                  {{"popcount(a / 2^b) alone",
                    ranks("", queries([](Index, Index place) { return popcount(place); }))}}});
  const auto corrected = ranks("its rank is at most min(2^b, popcount(a / 2^b)), and generically that",
                               queries(generic_query_rank));
  list.push_back(
      {"lla.rank.h2",
       source + ": the reading that it is H^2",
       ranks("M^H is H^2: its query side is nested too, M^H[tau, everything before] of rank at most 1",
             queries([](Index, Index) { return Index(1); }), true),
       std::make_shared<const Statement>(corrected),
       nullptr,
       {{"rank 0", ranks("", queries([](Index, Index) { return Index(0); }), true)}}});
}

// ---- cost
Index multiplications(Index tokens, const Shape& shape, bool direct) {
  Head<Counted> in;
  in.q = in.k = Matrix<Counted>(tokens, shape.key_dim), in.v = Matrix<Counted>(tokens, shape.value_dim);
  in.alpha.resize(static_cast<std::size_t>(tokens)),
      in.level_scales = Matrix<Counted>(tokens, levels_for(tokens));
  Arithmetic<Counted> counting;
  Counted::multiplications() = 0;
  if (direct)
    LogLinearMamba2::direct(in);
  else
    LogLinearMamba2::chunk(counting, in, 4);
  return Counted::multiplications();
}
// n(4T) + 4 n(T) = 4 n(2T) exactly when n(T) = a T log2 T + b T on doublings.
Statement operations(bool direct) {
  std::vector<Shape> shapes;
  for (const Index tokens : {8, 16, 24, 32, 40, 64})
    for (const Index d : {1, 2, 4})
      for (const Index dv : {1, 3}) shapes.push_back({tokens, d, dv, 0});
  return state(
      "multiplications of the chunk form (C = 4) are a T log2 T + b T: n(4T) + 4 n(T) = 4 n(2T)", shapes,
      [](const Shape&) { return Fields{}; },
      [direct]<class S>(const Shape& shape, const Inputs<S>&) {
        auto n = [&](Index times) { return multiplications(times * shape.tokens, shape, direct); };
        return Comparisons<S>{
            {"n(4T) + 4 n(T) against 4 n(2T)", integer<S>(n(4) + 4 * n(1)), integer<S>(4 * n(2))}};
      });
}
void cost_claims(std::vector<Claim>& list) {
  auto live = [](Index add) {
    return [add](Index tokens, Index t) {
      return std::pair<Index, Index>{live_levels(tokens)[static_cast<std::size_t>(t)], 1 + popcount(t) + add};
    };
  };
  list.push_back({"lla.cost.live",
                  paper,
                  per_token("after token t the stream holds 1 + popcount(t) level states",
                            "live levels against formula", live(0)),
                  nullptr,
                  nullptr,
                  {{"one more", per_token("", "live levels", live(1))}}});
  auto logarithmic = [](Index less) {
    return [less](Index tokens, Index t) {
      const Index bound = bit_length(tokens - 1) + 1 - less;
      return std::pair<Index, Index>{
          std::max<Index>(live_levels(tokens)[static_cast<std::size_t>(t)] - bound, 0), 0};
    };
  };
  list.push_back({"lla.cost.states",
                  paper,
                  per_token("live states grow as log T: never more than bit_length(T-1) + 1",
                            "live levels above the bound against 0", logarithmic(0)),
                  nullptr,
                  nullptr,
                  {{"one less", per_token("", "live levels", logarithmic(1))}}});
  list.push_back({"lla.cost.operations",
                  paper,
                  operations(false),
                  nullptr,
                  nullptr,
                  {{"the direct sum", operations(true)}}});
}

}  // namespace

void append_log_linear_claims(std::vector<Claim>& list) {
  partition(list);
  operator_claims<LogLinear, Linear>(list, "plain", false, false);
  operator_claims<LogLinearMamba2, Mamba2>(list, "mamba2", true, false);
  operator_claims<LogLinearGatedDelta, GatedDelta>(list, "gated_delta", true, true);
  rank_claims(list);
  cost_claims(list);
}

}  // namespace attest
