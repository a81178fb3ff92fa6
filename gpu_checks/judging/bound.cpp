#include "gpu_checks/judging/bound.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>

#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {

Normaliser normaliser_of(const Operator& op, const Problem& problem) {
  const bool scaled = problem.options.scale.value_or(op.declaration().unit_scale ? 1 : 0) != 1;
  return {problem.options.normalize, nearest_double(problem.options.epsilon), scaled};
}

ErrorModel model_of(const Operator& op, const Evaluation& form, const Contract& contract,
                    const Problem& problem, const Rows& rows, int threads) {
  const Index columns = problem.value_dim;
  ErrorModel all;
  all.deterministic = all.accumulation = all.variance = zeros<double>(rows.total(), columns);
  std::mutex guard;
  std::vector<std::string> undecided(rows.list().size());
  // What is left of them when every slot has one.
  const int all_threads = threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency());
  const int inner = std::max(1, all_threads / static_cast<int>(std::max<std::size_t>(rows.list().size(), 1)));
  for_each_parallel(static_cast<Index>(rows.list().size()), threads, [&](Index slot) {
    const auto s = static_cast<std::size_t>(slot);
    if (rows.list()[s].last == rows.list()[s].first) return;
    const Head<double> head = head_of<double>(problem, op.declaration(), rows.list()[s]);
    const ErrorModel one =
        error_model(op, head, form, contract, normaliser_of(op, problem), rows.chosen(s), inner);
    if (one.undecided) undecided[s] = one.reason;
    const std::lock_guard lock(guard);
    all.deterministic.set_rows(rows.first(s), one.deterministic);
    all.accumulation.set_rows(rows.first(s), one.accumulation);
    all.variance.set_rows(rows.first(s), one.variance);
    for (const auto& [label, share] : one.shares) {
      auto& target = all.shares.try_emplace(label, zeros<double>(rows.total(), columns)).first->second;
      target.set_rows(rows.first(s), share);
    }
    all.stages = std::max(all.stages, one.stages);
    all.undecided = all.undecided || one.undecided;
  });
  for (const std::string& reason : undecided)
    if (all.reason.empty()) all.reason = reason;
  return all;
}

std::map<std::string, double> mean_shares(const ErrorModel& model) {
  std::map<std::string, double> mean;
  Index counted = 0;
  for (Index i = 0; i < model.deterministic.size(); ++i) {
    double total = 0;
    for (const auto& [label, share] : model.shares) total += share.data()[i];
    if (!(total > 0) || !std::isfinite(total)) continue;
    ++counted;
    for (const auto& [label, share] : model.shares) mean[label] += share.data()[i] / total;
  }
  for (auto& [label, sum] : mean) sum /= static_cast<double>(counted);
  return mean;
}

}  // namespace attest
