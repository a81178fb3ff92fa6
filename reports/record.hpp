// The records of a run (schema attest.records/1): what every report reads, and nothing else.
// A file is JSON Lines: one `run` line, one line per case, one `end` line. A file without its `end` line is
// incomplete. Every floating-point value is a hex-float string ("0x1.8p+1", "inf", "-inf", "nan"), so that
// nothing is lost on the way; counts, seeds and nanoseconds are JSON integers. Optional members are left out
// of the file when they are empty.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/metrics/verdict.hpp"
#include "reports/shard.hpp"

namespace attest {

inline constexpr std::string_view records_schema = "attest.records/1";
inline constexpr std::size_t curve_limit = 256;  // points per tensor and case

enum class Rule { bound, bitwise, structural };

std::string_view to_string(Verdict verdict);
std::string_view to_string(Rule rule);

struct Run {
  std::string command;
  std::optional<std::uint64_t> seed;  // none: nothing was drawn, or with several seeds, which the cases name
  std::string commit;
  std::string compiler;
  std::string flags;
  std::string gpu;                               // empty: none
  std::string driver;                            // empty: none
  std::map<std::string, std::string> libraries;  // name -> version
  std::string started;                           // ISO 8601
  std::optional<Shard> shard = {};               // none: the whole run
};

struct KernelId {
  std::string name;
  std::string door;  // registered, plugin, process
  std::string op;
  std::string variant;
  std::string form;      // "chunk c=64 algebra=direct"
  std::string contract;  // the line of the kernel's author
  std::string sha256;    // of the binary or source; empty: not known

  bool operator==(const KernelId&) const = default;
};

// ratio = |got - expected| / bound, ulp = the same error in units in the last place of the output format.
struct Figures {
  Quantiles ratio;
  Quantiles ulp;
  bool bounded = true;  // false: there is no bound, hence no ratio and no power, and the file holds none
};

// power = share of the elements whose bound is below a quarter of |expected|: below one half, the check
// claims nothing.
struct TensorError : Figures {
  double power = 0;
  std::optional<double> norm =
      {};  // |got - expected| / |expected| in the l2 norm, of the worst sequence and head
};

struct WorstElement {
  std::string tensor;
  std::vector<std::int64_t> index;
  double expected = 0;  // the leading part of the oracle's value
  double got = 0;
  double bound = 0;
  double ratio = 0;
  std::string replay;  // the line that repeats this case
};

struct Check {
  std::string name;
  Verdict verdict = Verdict::pass;
  Rule rule = Rule::bound;
  std::int64_t compared = 0;
  std::int64_t violations = 0;
  std::optional<WorstElement> worst;
  std::string replay;
  std::string reason;
  std::optional<std::int64_t> inputs = {};     // decided; none: the one of the case
  std::optional<std::int64_t> undecided = {};  // inputs on which nothing could be claimed
  std::optional<std::int64_t> time_ns = {};    // of this check among several
};

// Where the violations lie, in words ("512..1023", "0", "all"); an empty member does not apply.
struct Locate {
  std::string tokens;
  std::string chunk_position;
  std::string heads;
  std::string levels;
  std::string columns;
};

struct Oracle {
  std::string method;
  std::int64_t bits = 0;                        // 0: exact
  std::optional<double> radius_over_bound = 0;  // none: there is no bound
};

struct Times {
  std::int64_t kernel_ns = 0;
  std::int64_t oracle_ns = 0;
  std::int64_t total_ns = 0;
};

// The largest error/bound among the elements at one position (token), with the error and the bound of that
// element.
struct CurvePoint {
  std::string tensor;
  std::int64_t position = 0;
  double ratio_max = 0;
  double error_max = 0;
  double bound_at_max = 0;
};

struct CaseRecord {
  std::string case_line;  // member "case"
  KernelId kernel;
  Verdict verdict = Verdict::not_run;
  std::string reason;
  std::vector<Check> checks;
  std::map<std::string, TensorError> error;  // tensor -> figures
  std::optional<Locate> locate;
  std::optional<Oracle> oracle;
  std::optional<Times> time;

  // Beyond the verdict, for the page; all optional.
  std::optional<std::int64_t> tokens;  // T of the case, to draw error against T
  std::vector<CurvePoint> curve;       // error against position; at most curve_limit points per tensor
  std::optional<Quantiles> magnitude;  // of M/|o|, M the sum of the absolute values of the terms
  std::vector<WorstElement> worst;     // worst elements, worst first
  std::map<std::string, Figures>
      plain;  // tensor -> figures of the plain low-precision evaluation of the same case
  std::map<std::string, double>
      stages;  // stage -> its share of the bound, summing to about 1 (S·C and G apart)

  std::optional<std::int64_t> index = {};  // of a shard: which case of the whole run this is, from 0
};

struct End {
  std::int64_t cases = 0;
  std::int64_t pass = 0;
  std::int64_t suspect = 0;
  std::int64_t fail = 0;
  std::int64_t undecided = 0;
  std::int64_t not_run = 0;
  std::string finished;  // ISO 8601

  void count(Verdict verdict);
  std::int64_t of(Verdict verdict) const;
};

struct Records {
  Run run;
  std::vector<CaseRecord> cases;
  End end;
  bool complete = true;  // false: the `end` line is missing, and `end` holds what was counted
};

// A curve of at most `limit` points per tensor: neighbours are merged, keeping of each group the point of
// largest ratio.
std::vector<CurvePoint> thin_curve(const std::vector<CurvePoint>& curve, std::size_t limit = curve_limit);

}  // namespace attest
