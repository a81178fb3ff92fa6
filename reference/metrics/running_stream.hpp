// The running error (numeric/running.hpp) of the streams of scalar transitions and of HLA, on arrays, and with the products of
// a token's moments taken in factors: what forms.hpp derives costs HLA key_dim^2 value_dim a token, this
// key_dim (key_dim + value_dim). A moment of one token is left right^T, its error a sum of few L R^T, and so is that of its
// product with a state D:   D (left right^T):  sum_x |D| E + |f| e_D + e_D E = ((|D| + e_D) L) R^T + (e_D |left|) |right|^T
// The rules are those of Running for sums of any order, in the order of `combine` and `read`. Exact 0 and 1 among the inputs
// cost Running nothing, here only rows and tokens of 0 do; but a sum times an exact 1 is finished here and open there, which
// costs that one up to 1e-4 more. Without them the two agree.
#pragma once
#include <optional>
#include <string>

#include "reference/numeric/running.hpp"
#include "reference/operators/common/declaration.hpp"
#include "reference/operators/common/error_units.hpp"

namespace attest {

// What is rounded beside the operations, whose units are those of the WorkingScope.
struct StreamRounding {
  struct Stored {
    const Format& format;
    double unit, lost;  // lost: by underflow
  };
  Stored state, output;
  double query;  // of a scaled query
  bool rounds_output;
};

struct RunningRows {
  Array error;            // (tokens, value_dim)
  std::string undecided;  // why; empty: it is not
};

// Nothing for other streams, and where the generic analysis takes few operations.
// `scalars`: gates, decay and ridge with their errors.
std::optional<RunningRows> running_stream(const Declaration& declaration, int algebra,
                                          const Head<double>& head, const Head<Running>& scalars,
                                          const StreamRounding& rounding);

// Operations of the generic analysis, 2^23 unless set, for the whole process.
void set_stream_work(double operations);
inline constexpr double usual_stream_work = 0x1p23;

}  // namespace attest
