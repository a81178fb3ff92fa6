// The sharp error models of the forms, by operator: which stages a form has and how the output reads them.
// Nothing where there is none; the caller then falls back to a running error bound.
#pragma once
#include "reference/operators/common/declaration.hpp"
#include "reference/operators/common/error_rows.hpp"

namespace attest {

struct FormError {
  const Declaration& declaration;
  const Head<double>& head;
  const Units& units;
  int algebra = 0;
  Index width = 0;                           // of the chunk form
  bool round_output = true;                  // else the unnormalised result stays in `accumulate`
  const std::vector<Index>* rows = nullptr;  // of the output, ascending, whose bound is wanted; null: all
  int threads = 1;                           // that work on this head; none changes what comes out
  // Stages of the usual other associations of a delta rule too, where they cost more than the form's own.
  bool any_association = false;

  RowSet row_set() const { return RowSet(head.tokens(), rows); }
};

std::optional<ErrorModel> first_order_chunk_error(const FormError& form);  // linear, retention, mamba2
std::optional<ErrorModel> hla_chunk_error(const FormError& form);          // hla2, ahla, hla3
std::optional<ErrorModel> delta_chunk_error(const FormError& form);        // delta, gated_delta
std::optional<ErrorModel> log_linear_chunk_error(const FormError& form);   // log_linear, log_linear_mamba2
std::optional<ErrorModel> log_linear_delta_chunk_error(const FormError& form);
std::optional<ErrorModel> softmax_error(const FormError& form);  // stream

// Stream and scan of every operator with a first-order recurrence: scalar, delta and log-linear ones.
std::optional<ErrorModel> recurrence_stream_error(const FormError& form);
std::optional<ErrorModel> recurrence_scan_error(const FormError& form);

// The gates of a first-order operator and whether its transition is a delta rule.
Gates<double> declared_gates(const FormError& form);

// Adds the rounding of the result, given for all tokens, and closes the sum of the wanted rows.
ErrorModel finish_output(const FormError& form, ErrorSum& sum, const Array& o);

}  // namespace attest
