// The certified oracle against its peers on masked HLA2, one thread, in one run, every result compared with
// ours:
//   FLINT   exact integer matrix products (inputs scaled to integers), over blocks of rows so that it, too,
//   skips the future Arb     arb_dot at 256 bits        Boost MPFR  256 bits, plain loops        double plain
//   loops, no certificate
// All of them evaluate A = tril(Q K^T) K, O = tril(Q A^T) V: O(n^2 d). Then how ours grows with n, for four
// operators. Usage: bench_oracle [--quick] [--largest N]. Prints Markdown. Exit 1 if a peer's value lies
// outside our radius.
#include <arb.h>
#include <flint/fmpz_mat.h>
#include <malloc.h>

#include <algorithm>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "reference/forms/certified.hpp"

namespace {
std::size_t heap_now = 0, heap_peak = 0;
}

// All that the oracle allocates comes through here (one thread). Not inlined: GCC would take free for a
// mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* p = std::malloc(size ? size : 1);
  if (!p) throw std::bad_alloc();
  heap_now += malloc_usable_size(p);
  heap_peak = std::max(heap_peak, heap_now);
  return p;
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  void* p = std::aligned_alloc(static_cast<std::size_t>(alignment), (size + 63) / 64 * 64);
  if (!p) throw std::bad_alloc();
  heap_now += malloc_usable_size(p);
  heap_peak = std::max(heap_peak, heap_now);
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  if (p) heap_now -= malloc_usable_size(p);
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  operator delete(p);
}

namespace attest {
namespace {

constexpr Index kDim = 64;
constexpr slong kBits = 256;
using Real = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<77>>;

struct Data {
  Index tokens;
  std::vector<double> q, k, v, gates, level_scales;
  Index levels;

  explicit Data(Index n) : tokens(n), levels(2) {
    for (Index reach = 1; reach < n; reach *= 2) ++levels;
    std::uint64_t state = 20251029;
    const auto unit = [&] {  // splitmix64
      std::uint64_t z = state += 0x9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
    };
    const auto normal = [&] {  // sum of twelve uniforms, rounded to fp32
      double sum = -6;
      for (int i = 0; i < 12; ++i) sum += unit();
      return static_cast<double>(static_cast<float>(sum));
    };
    for (auto* x : {&q, &k, &v}) {
      x->resize(static_cast<std::size_t>(n * kDim));
      for (double& e : *x) e = normal();
    }
    gates.resize(static_cast<std::size_t>(n)), level_scales.resize(static_cast<std::size_t>(n * levels));
    for (double& e : gates) e = static_cast<float>(1 - unit() / 8);
    for (double& e : level_scales) e = static_cast<float>(unit());
  }
  CertifiedInput input() const {
    CertifiedInput in;
    in.tokens = tokens, in.key_dim = in.value_dim = kDim;
    in.q = q.data(), in.k = k.data(), in.v = v.data();
    return in;
  }
  CertifiedInput log_linear() const {
    CertifiedInput in = input();
    in.weights.gate_high = gates.data();
    in.weights.level_scales = level_scales.data(), in.weights.levels = levels;
    return in;
  }
};

// Processor time of this thread, so that a busy machine favours nobody.
double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = now();
  work();
  return now() - start;
}

double median_seconds(int runs, const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(seconds(work));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double worst_radius(const CertifiedRows& rows) {
  double worst = 0;
  for (std::size_t i = 0; i < rows.radius.size(); ++i)
    worst = std::max(worst, rows.radius[i] / rows.magnitude[i]);
  return worst;
}

// Whether value (an enclosure) and ours agree: |value - (high + low)| may not be certainly above radius +
// slack M.
bool agrees(const arb_t value, const CertifiedRows& ours, std::size_t i, double slack) {
  arb_t difference, part, bound;
  arb_init(difference), arb_init(part), arb_init(bound);
  arb_set_d(part, ours.high[i]);
  arb_sub(difference, value, part, 2000);
  arb_set_d(part, ours.low[i]);
  arb_sub(difference, difference, part, 2000);
  arb_abs(difference, difference);
  arb_set_d(bound, ours.radius[i] + slack * ours.magnitude[i]);
  const bool result = arb_is_finite(value) && !arb_gt(difference, bound);
  arb_clear(difference), arb_clear(part), arb_clear(bound);
  return result;
}

struct Peer {
  std::string name;
  double seconds;
  bool agreed;
};

// --- FLINT
// ---------------------------------------------------------------------------------------------------------

class FlintMatrix {
 public:
  FlintMatrix(Index rows, Index columns) { fmpz_mat_init(matrix_, rows, columns); }
  FlintMatrix(const FlintMatrix&) = delete;
  ~FlintMatrix() { fmpz_mat_clear(matrix_); }
  fmpz_mat_struct* get() { return matrix_; }

 private:
  fmpz_mat_t matrix_;
};

// The least s >= 0 for which x 2^s is an integer throughout.
int integer_shift(const std::vector<double>& x) {
  int shift = 0;
  for (const double e : x)
    for (double scaled = std::ldexp(e, shift); scaled != std::floor(scaled); scaled = std::ldexp(e, shift))
      ++shift;
  return shift;
}

void set_scaled(FlintMatrix& to, const std::vector<double>& x, int shift) {
  for (Index i = 0; i < static_cast<Index>(x.size()); ++i)
    fmpz_set_d(fmpz_mat_entry(to.get(), i / kDim, i % kDim),
               std::ldexp(x[static_cast<std::size_t>(i)], shift));
}

// rows of out = tril(Q K^T) V, a block of rows at a time
void flint_masked(FlintMatrix& out, FlintMatrix& q, FlintMatrix& k, FlintMatrix& v, Index n, Index block) {
  for (Index first = 0; first < n; first += block) {
    const Index last = std::min(n, first + block);
    FlintMatrix transposed(kDim, last), scores(last - first, last), sums(last - first, kDim);
    fmpz_mat_t queries, keys, values, target;
    fmpz_mat_window_init(queries, q.get(), first, 0, last, kDim);
    fmpz_mat_window_init(keys, k.get(), 0, 0, last, kDim);
    fmpz_mat_window_init(values, v.get(), 0, 0, last, kDim);
    fmpz_mat_window_init(target, out.get(), first, 0, last, kDim);
    fmpz_mat_transpose(transposed.get(), keys);
    fmpz_mat_mul(scores.get(), queries, transposed.get());
    for (Index t = first; t < last; ++t)
      for (Index s = t + 1; s < last; ++s) fmpz_zero(fmpz_mat_entry(scores.get(), t - first, s));
    fmpz_mat_mul(sums.get(), scores.get(), values);
    fmpz_mat_set(target, sums.get());
    fmpz_mat_window_clear(queries), fmpz_mat_window_clear(keys), fmpz_mat_window_clear(values);
    fmpz_mat_window_clear(target);
  }
}

Peer flint_peer(const Data& data, const CertifiedRows& ours, Index block) {
  const Index n = data.tokens;
  FlintMatrix q(n, kDim), k(n, kDim), v(n, kDim), a(n, kDim), o(n, kDim);
  const int q_shift = integer_shift(data.q), k_shift = integer_shift(data.k), v_shift = integer_shift(data.v);
  set_scaled(q, data.q, q_shift), set_scaled(k, data.k, k_shift), set_scaled(v, data.v, v_shift);
  const double time = median_seconds(n <= 256 ? 3 : 1, [&] {
    flint_masked(a, q, k, k, n, block);
    flint_masked(o, q, a, v, n, block);
  });
  bool agreed = true;
  arb_t value;
  arb_init(value);
  for (std::size_t i = 0; i < ours.high.size(); ++i) {
    arb_set_fmpz(value, fmpz_mat_entry(o.get(), static_cast<Index>(i) / kDim, static_cast<Index>(i) % kDim));
    arb_mul_2exp_si(value, value, -(2 * q_shift + 2 * k_shift + v_shift));
    agreed = agreed && agrees(value, ours, i, 0);
  }
  arb_clear(value);
  return {"FLINT `fmpz_mat_mul`, exact, blocks of " + std::to_string(block) + " rows", time, agreed};
}

// --- Arb
// -----------------------------------------------------------------------------------------------------------

class ArbVector {
 public:
  explicit ArbVector(Index size) : data_(_arb_vec_init(size)), size_(size) {}
  ArbVector(const ArbVector&) = delete;
  ~ArbVector() { _arb_vec_clear(data_, size_); }
  arb_ptr at(Index i) { return data_ + i; }
  void set(const std::vector<double>& x) {
    for (Index i = 0; i < size_; ++i) arb_set_d(at(i), x[static_cast<std::size_t>(i)]);
  }

 private:
  arb_ptr data_;
  Index size_;
};

void arb_masked(ArbVector& out, ArbVector& q, ArbVector& k, ArbVector& v, Index n) {
  ArbVector scores(n);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s <= t; ++s)
      arb_dot(scores.at(s), nullptr, 0, q.at(t * kDim), 1, k.at(s * kDim), 1, kDim, kBits);
    for (Index e = 0; e < kDim; ++e)
      arb_dot(out.at(t * kDim + e), nullptr, 0, scores.at(0), 1, v.at(e), kDim, t + 1, kBits);
  }
}

Peer arb_peer(const Data& data, const CertifiedRows& ours) {
  const Index size = data.tokens * kDim;
  ArbVector q(size), k(size), v(size), a(size), o(size);
  q.set(data.q), k.set(data.k), v.set(data.v);
  const double time = seconds([&] {
    arb_masked(a, q, k, k, data.tokens);
    arb_masked(o, q, a, v, data.tokens);
  });
  bool agreed = true;
  for (std::size_t i = 0; i < ours.high.size(); ++i)
    agreed = agreed && agrees(o.at(static_cast<Index>(i)), ours, i, 0);
  return {"Arb `arb_dot`, 256 bits", time, agreed};
}

// --- plain loops over a number type
// --------------------------------------------------------------------------------

template <class Number>
void plain_masked(std::vector<Number>& out, const std::vector<Number>& q, const std::vector<Number>& k,
                  const std::vector<Number>& v, Index n) {
  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  for (Index t = 0; t < n; ++t)
    for (Index s = 0; s <= t; ++s) {
      Number score = 0;
      for (Index c = 0; c < kDim; ++c) score += q[at(t * kDim + c)] * k[at(s * kDim + c)];
      for (Index e = 0; e < kDim; ++e) out[at(t * kDim + e)] += score * v[at(s * kDim + e)];
    }
}

template <class Number>
std::vector<Number> plain_hla2(const Data& data, double& time, int runs) {
  const std::vector<Number> q(data.q.begin(), data.q.end()), k(data.k.begin(), data.k.end()),
      v(data.v.begin(), data.v.end());
  std::vector<Number> o;
  time = median_seconds(runs, [&] {
    std::vector<Number> a(q.size());
    o.assign(v.size(), Number(0));
    plain_masked(a, q, k, k, data.tokens);
    plain_masked(o, q, a, v, data.tokens);
  });
  return o;
}

Peer mpfr_peer(const Data& data, const CertifiedRows& ours) {
  double time = 0;
  const std::vector<Real> o = plain_hla2<Real>(data, time, 1);
  bool agreed = true;
  arb_t value;
  arb_init(value);
  for (std::size_t i = 0; i < o.size(); ++i) {
    arf_set_mpfr(arb_midref(value), o[i].backend().data());
    agreed = agreed && agrees(value, ours, i, 0x1p-200);  // 2^-256 times fewer than 2^14 roundings
  }
  arb_clear(value);
  return {"Boost.Multiprecision MPFR, 256 bits", time, agreed};
}

Peer double_peer(const Data& data, const CertifiedRows& ours) {
  double time = 0;
  const std::vector<double> o = plain_hla2<double>(data, time, 3);
  const double roundings = 2.0 * static_cast<double>(data.tokens + kDim + 2);  // Higham 3.1: gamma of them
  bool agreed = true;
  arb_t value;
  arb_init(value);
  for (std::size_t i = 0; i < o.size(); ++i) {
    arb_set_d(value, o[i]);
    agreed = agreed && agrees(value, ours, i, roundings * 0x1.001p-53);
  }
  arb_clear(value);
  return {"double, plain loops, no certificate", time, agreed};
}

// --- tables
// --------------------------------------------------------------------------------------------------------

bool compare_with_peers(Index n) {
  const Data data(n);
  const CertifiedInput input = data.input();
  CertifiedRows ours;
  std::vector<Peer> rows;
  for (auto kernels = certified_kernels(); *kernels; ++kernels) {
    CertifiedOptions options;
    options.kernels = *kernels;
    CertifiedRows result;
    const double time = median_seconds(5, [&] { result = certified_hla2(input, options); });
    rows.push_back({std::string("attest, double-double with radius, ") + (*kernels)->name, time, true});
    if (ours.high.empty()) ours = std::move(result);
  }
  for (Index block = 64; block <= n; block *= 2) rows.push_back(flint_peer(data, ours, block));
  rows.push_back(arb_peer(data, ours));
  rows.push_back(mpfr_peer(data, ours));
  rows.push_back(double_peer(data, ours));

  const double pairs = static_cast<double>(n) * static_cast<double>(n + 1) / 2, operations = 4 * pairs * kDim;
  std::printf("Masked HLA2, n = %ld, d = dv = %ld, fp32 inputs, one thread; worst radius 2^%.1f M.\n\n",
              static_cast<long>(n), static_cast<long>(kDim), std::log2(worst_radius(ours)));
  std::printf(
      "| arithmetic | CPU seconds | ns a multiply-add | times ours | agrees |\n| --- | ---: | ---: | ---: | "
      "--- "
      "|\n");
  bool agreed = true;
  double fastest_exact = 1e300;
  for (const Peer& row : rows) {
    std::printf("| %s | %.4f | %.3f | %.2f | %s |\n", row.name.c_str(), row.seconds,
                row.seconds / operations * 1e9, row.seconds / rows[0].seconds, row.agreed ? "yes" : "NO");
    agreed = agreed && row.agreed;
    if (row.name.starts_with("FLINT") || row.name.starts_with("Arb"))
      fastest_exact = std::min(fastest_exact, row.seconds);
  }
  std::printf("\n%.1f times faster than the fastest of FLINT (over all block sizes) and Arb.\n\n",
              fastest_exact / rows[0].seconds);
  return agreed;
}

struct Growing {
  const char* name;
  CertifiedRows (*run)(const CertifiedInput&, const CertifiedOptions&);
  CertifiedInput (Data::*input)() const;
};

void growth(Index largest) {
  constexpr Growing kOperators[] = {{"hla2", certified_hla2, &Data::input},
                                    {"ahla", certified_ahla, &Data::input},
                                    {"hla3", certified_hla3, &Data::input},
                                    {"log_linear_mamba2", certified_linear, &Data::log_linear}};
  std::printf(
      "Growth, the fastest kernels (%s), one thread; allowed memory is 4 times the fp64 input plus an n x d "
      "table.\n\n",
      certified_kernels()[0]->name);
  std::printf("| operator | n | CPU seconds | times n/2 | worst radius / M | peak MiB | allowed MiB |\n");
  std::printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const Growing& op : kOperators) {
    double before = 0;
    for (Index n = 256; n <= largest; n *= 2) {
      const Data data(n);
      const CertifiedInput input = (data.*op.input)();
      CertifiedRows result;
      std::size_t memory = 0;
      const double time = median_seconds(n <= 2048 ? 3 : 1, [&] {
        result = {};
        const std::size_t base = heap_now;
        heap_peak = base;
        result = op.run(input, {});
        memory = heap_peak - base;
      });
      const double table = static_cast<double>(n * kDim) * sizeof(double) / (1 << 20);
      std::printf("| %s | %ld | %.4f | %s | 2^%.1f | %.2f | %.2f |\n", op.name, static_cast<long>(n), time,
                  before > 0 ? std::to_string(time / before).substr(0, 4).c_str() : "",
                  std::log2(worst_radius(result)), static_cast<double>(memory) / (1 << 20), 13 * table);
      std::fflush(stdout);
      before = time;
    }
  }
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  bool quick = false;
  attest::Index largest = 8192;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--quick")) {
      quick = true;
    } else if (!std::strcmp(argv[i], "--largest") && i + 1 < argc) {
      largest = std::atol(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_oracle [--quick] [--largest N]\n");
      return 2;
    }
  }
  bool agreed = attest::compare_with_peers(256);
  if (!quick) agreed = attest::compare_with_peers(1024) && agreed;
  attest::growth(quick ? 512 : largest);
  flint_cleanup();
  return agreed ? 0 : 1;
}
