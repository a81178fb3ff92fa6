#include "gpu_checks/check.hpp"

#include <algorithm>
#include <mutex>
#include <thread>

#include "gpu_checks/judging/judge_kernel.hpp"
#include "gpu_checks/oracle/gpu_oracle.hpp"
#include "reference/forms/certified_route.hpp"
#include "reference/forms/certify.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {

namespace {

const Operator& operator_of(const Kernel& kernel) { return operator_named(kernel.op, kernel.variant); }

// Kernels whose contracts round every input alike.
bool same_rounding(const Contract& a, const Contract& b) {
  return a.input == b.input && a.gate_sum == b.gate_sum && a.state == b.state;
}

// One rounded input, the kernels that see it, and the indices of their cases.
struct Job {
  const CheckSource* source;
  const Operator* op;
  Case input;
  std::vector<Index> lengths;
  std::vector<std::pair<const Kernel*, std::vector<Index>>> kernels;  // and an index for every length
};

// Drawn inputs of different lengths have level scales of their own: every length is a job. A file is one.
std::vector<std::vector<Index>> length_groups(const CheckSource& source) {
  if (!source.input.drawn()) return {source.lengths};
  std::vector<std::vector<Index>> groups;
  for (const Index length : source.lengths) groups.push_back({length});
  return groups;
}

void add_jobs(const CheckSource& source, Index first_index, const CheckListener& listener,
              std::vector<Job>& jobs) {
  const Operator& op = operator_of(*source.kernels.at(0));
  Index before = 0;
  for (const std::vector<Index>& lengths : length_groups(source)) {
    Case input = source.input;
    if (input.drawn()) input.tokens = lengths.back(), draw_problem(input, op.declaration());  // BadInput now
    const auto first = static_cast<std::ptrdiff_t>(jobs.size());
    for (std::size_t k = 0; k < source.kernels.size(); ++k) {
      std::vector<Index> indices;
      bool wanted = false;
      for (std::size_t l = 0; l < lengths.size(); ++l) {
        indices.push_back(first_index + static_cast<Index>(k * source.lengths.size() + l) + before);
        wanted = wanted || !listener.known || !listener.known(indices.back());
      }
      if (!wanted) continue;
      auto job = std::find_if(jobs.begin() + first, jobs.end(), [&](const Job& j) {
        return same_rounding(j.kernels[0].first->contract, source.kernels[k]->contract);
      });
      if (job == jobs.end()) job = jobs.insert(jobs.end(), {&source, &op, input, lengths, {}});
      job->kernels.emplace_back(source.kernels[k], indices);
    }
    before += static_cast<Index>(lengths.size());
  }
}

std::vector<Job> jobs_of(const std::vector<CheckSource>& sources, const CheckListener& listener) {
  std::vector<Job> jobs;
  Index total = 0;
  for (const CheckSource& source : sources) {
    add_jobs(source, total, listener, jobs);
    total += static_cast<Index>(source.kernels.size() * source.lengths.size());
  }
  return jobs;
}

// Hands results over, in order where it is asked for.
class Sequencer {
 public:
  Sequencer(Index total, const CheckListener& listener)
      : results_(listener.result ? static_cast<std::size_t>(total) : 0), listener_(listener) {
    for (Index i = 0; i < total; ++i)
      if (known(i)) --to_run_;
    to_run_ += total;
  }
  bool known(Index index) const { return listener_.known && listener_.known(index); }
  void add(Index index, Checked result) {
    const std::lock_guard lock(guard_);
    if (listener_.finished) listener_.finished(index, result);
    ++done_;
    if (listener_.progress) listener_.progress(done_, to_run_);
    if (!listener_.result) return;
    results_[static_cast<std::size_t>(index)] = std::move(result);
    for (; next_ < results_.size() && (results_[next_] || known(static_cast<Index>(next_))); ++next_) {
      if (results_[next_]) listener_.result(*results_[next_]);
      results_[next_].reset();
    }
  }

 private:
  std::mutex guard_;
  std::vector<std::optional<Checked>> results_;
  std::size_t next_ = 0;
  Index done_ = 0, to_run_ = 0;
  const CheckListener& listener_;
};

void perform(const Job& job, int oracle_threads, Sequencer& sequencer) {
  const Problem drawn =
      job.input.drawn() ? draw_problem(job.input, job.op->declaration()) : job.source->problem;
  SharedOracle oracle(*job.op, round_inputs(job.kernels.at(0).first->contract, drawn), oracle_threads);
  PlainCache plain;
  for (const auto& [kernel, indices] : job.kernels)
    for (std::size_t l = 0; l < job.lengths.size(); ++l) {
      if (sequencer.known(indices[l])) continue;
      sequencer.add(indices[l], judge_kernel(*kernel, *job.op, job.input, oracle, job.lengths[l], plain));
    }
}

}  // namespace

Index case_count(const std::vector<CheckSource>& sources) {
  Index total = 0;
  for (const CheckSource& source : sources)
    total += static_cast<Index>(source.kernels.size() * source.lengths.size());
  return total;
}

std::vector<Index> oracle_groups(const std::vector<CheckSource>& sources) {
  std::vector<Index> groups(static_cast<std::size_t>(case_count(sources)));
  const std::vector<Job> jobs = jobs_of(sources, {});
  for (std::size_t j = 0; j < jobs.size(); ++j)
    for (const auto& [kernel, indices] : jobs[j].kernels)
      for (const Index index : indices) groups[static_cast<std::size_t>(index)] = static_cast<Index>(j);
  return groups;
}

void check(const std::vector<CheckSource>& sources, int threads, const CheckListener& listener) {
  std::string without;
  use_certified_engine(gpu_engine(without), gpu_oracle_tokens);
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::vector<Job> jobs = jobs_of(sources, listener);
  Sequencer sequencer(case_count(sources), listener);
  const int oracle_threads = jobs.empty() ? 1 : std::max(1, threads / static_cast<int>(jobs.size()));
  for_each_parallel(static_cast<Index>(jobs.size()), threads,
                    [&](Index i) { perform(jobs[static_cast<std::size_t>(i)], oracle_threads, sequencer); });
}

Checked check_one(const Kernel& kernel, const Case& input, const Problem& problem) {
  const Operator& op = operator_of(kernel);
  SharedOracle oracle(op, round_inputs(kernel.contract, problem), 0);
  PlainCache plain;
  return judge_kernel(kernel, op, input, oracle, problem.tokens, plain);
}

}  // namespace attest
