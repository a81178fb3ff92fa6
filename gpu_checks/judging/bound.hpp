// The error model of a kernel's form and contract (reference/metrics/bound.hpp) over the judged rows of a problem.
#pragma once
#include <map>
#include <string>

#include "gpu_checks/judging/rows.hpp"
#include "reference/metrics/bound.hpp"

namespace attest {

Normaliser normaliser_of(const Operator& op, const Problem& problem);

// The models of all slots under one another, evaluated by `threads` threads; undecided, with the first reason, where one
// of them is.
ErrorModel model_of(const Operator& op, const Evaluation& form, const Contract& contract,
                    const Problem& problem, const Rows& rows, int threads);

// The mean over the elements of each stage's part of their bound.
std::map<std::string, double> mean_shares(const ErrorModel& model);

}  // namespace attest
