#include "gpu_checks/battery/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu_checks/list_in_words.hpp"

namespace attest {
namespace {

std::vector<Index> unravel(const std::vector<Index>& shape, Index flat) {
  std::vector<Index> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; flat /= shape[axis]) index[axis] = flat % shape[axis];
  return index;
}

ComparisonObserver& observer() {
  thread_local ComparisonObserver current;
  return current;
}

}  // namespace

ObserveComparisons::ObserveComparisons(ComparisonObserver seen) { observer() = std::move(seen); }
ObserveComparisons::~ObserveComparisons() { observer() = nullptr; }

std::string in_words(const Places& p) {
  std::string text;
  const auto add = [&](const char* name, const std::string& what) {
    if (!what.empty()) text += (text.empty() ? "" : ", ") + std::string(name) + " " + what;
  };
  add("in", p.outputs), add("sequence", p.sequences), add("token", p.tokens);
  add("position in the chunk", p.chunk_position), add("head", p.heads), add("level", p.levels);
  add("column", p.columns);
  return text;
}

void Findings::input(std::string words) { input_ = std::move(words), counted_ = differs_ = false; }

void Findings::leave_out(const std::string& why) {
  ++left_out_;
  if (left_out_why_.empty()) left_out_why_ = why;
}

void Findings::refuse(const std::string& why) { ++refused_, leave_out("unsupported: " + why); }

void Findings::fault(const std::string& what) {
  if (fault_.empty()) fault_ = what;
  if (first_input_.empty()) first_input_ = input_;
}

void Findings::violate(const Problem& problem, const std::string& tensor, const std::vector<Index>& shape,
                       Index flat, double expected, double got, double bound, double ratio, bool exact) {
  ++violations_;
  if (!differs_) ++differing_, differs_ = true;
  if (first_input_.empty()) first_input_ = input_;
  if (first_input_ != input_) return;
  if (std::isnan(got) && std::isfinite(expected)) ++not_numbers_;
  const std::vector<Index> index = unravel(shape, flat);
  if (!worst_ || ratio > worst_ratio_)
    worst_ = {tensor, index, expected, got, bound}, worst_ratio_ = ratio, worst_exact_ = exact;
  const auto note = [&](const char* axis, Index value, Index extent) {
    where_[axis].insert(value);
    extent_[axis] = std::max(extent_[axis], extent);
  };
  outputs_.insert(tensor);
  const bool per_token = tensor == "o" || (tensor[0] == 'd' && !tensor.starts_with("dinitial_state."));
  if (!per_token) {
    note("sequence", index[0], shape[0]), note("head", index[1], shape[1]);
    const bool levels = shape.size() > 4;
    if (levels) note("level", index[2], shape[2]);
    note("column", index.back(), shape.back());
    return;
  }
  Index token = index[1], sequence = index[0];
  if (!problem.cu_seqlens.empty()) {
    const auto end = std::upper_bound(problem.cu_seqlens.begin(), problem.cu_seqlens.end(), token);
    sequence = end - problem.cu_seqlens.begin() - 1;
    token -= problem.cu_seqlens[static_cast<std::size_t>(sequence)];
  }
  note("sequence", sequence, problem.sequences()), note("token", token, shape[1]),
      note("head", index[2], shape[2]);
  if (index.size() > 3) note(tensor == "dlevel_scales" ? "level" : "column", index[3], shape[3]);
  if (kernel_.how.form == Form::chunk) note("chunk", token % kernel_.how.chunk, kernel_.how.chunk);
}

void Findings::exact(const Problem& problem, const std::string& tensor, const Tensor& got,
                     const Tensor& expected) {
  if (!counted_) ++inputs_, counted_ = true;
  if (got.shape != expected.shape || got.data.size() != expected.data.size())
    return fault(tensor + " has another shape than expected");
  if (observer()) observer()(input_, tensor, got.data, expected.data);
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    ++compared_;
    if (got.data[i] == expected.data[i]) continue;
    const double error = std::abs(got.data[i] - expected.data[i]);
    violate(problem, tensor, got.shape, static_cast<Index>(i), expected.data[i], got.data[i], 0,
            std::isnan(error) ? INFINITY : error, true);
  }
}

void Findings::exact(const Problem& problem, const Tensors& got, const Tensors& expected) {
  for (const auto& [name, tensor] : got)
    if (const auto found = expected.find(name); found != expected.end())
      exact(problem, name, tensor, found->second);
}

void Findings::within(const Problem& problem, const std::string& tensor, const Tensor& got,
                      const std::vector<double>& expected, const std::vector<double>& error,
                      const std::vector<double>& bound, const std::vector<double>& passing) {
  if (!counted_) ++inputs_, counted_ = true;
  if (observer()) observer()(input_, tensor, got.data, expected);
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    ++compared_;
    const double part = error[i] == 0 ? 0 : error[i] / bound[i];
    if (part > reached_ || std::isnan(part))
      reached_ = std::isnan(part) ? INFINITY : part, reached_at_ = static_cast<Index>(i);
    if (error[i] <= passing[i]) continue;
    if (error[i] <= bound[i]) {
      ++suspicious_;
      continue;
    }
    const double ratio = error[i] / bound[i];
    violate(problem, tensor, got.shape, static_cast<Index>(i), expected[i], got.data[i], bound[i],
            std::isnan(ratio) ? INFINITY : ratio);
  }
}

void Findings::not_finite(const Problem& problem, const std::string& tensor, const Tensor& got,
                          const std::vector<bool>& must) {
  if (!counted_) ++inputs_, counted_ = true;
  for (std::size_t i = 0; i < got.data.size(); ++i) {
    if (!must[i]) continue;
    ++compared_;
    if (std::isfinite(got.data[i]))
      violate(problem, tensor, got.shape, static_cast<Index>(i), NAN, got.data[i], 0, INFINITY);
  }
}

Places Findings::places() const {
  Places p;
  const auto words = [&](const char* axis) {
    const auto found = where_.find(axis);
    return found == where_.end() || extent_.at(axis) == 1 ? ""
                                                          : list_in_words(found->second, extent_.at(axis));
  };
  for (const std::string& name : outputs_) p.outputs += (p.outputs.empty() ? "" : ", ") + name;
  p.sequences = words("sequence"), p.tokens = words("token"), p.chunk_position = words("chunk");
  p.heads = words("head"), p.levels = words("level"), p.columns = words("column");
  return p;
}

CheckOutcome Findings::outcome() const {
  CheckOutcome result;
  result.inputs = inputs_, result.undecided = left_out_, result.compared = compared_;
  result.violations = violations_, result.suspicious = suspicious_, result.differing = differing_;
  if (failed()) {
    result.verdict = Verdict::fail, result.input = first_input_, result.places = places(),
    result.worst = worst_;
    if (!fault_.empty())
      result.reason = fault_;
    else
      result.reason = fmt::format(
          "{} of {} elements differ, on {} of {} inputs; the first: {}{}: got {:.9g}, expected {:.9g}{}",
          violations_, compared_, differing_, inputs_, in_words(result.places),
          not_numbers_ > 0 ? fmt::format(" ({} NaN)", not_numbers_) : "", worst_->got, worst_->expected,
          worst_exact_ ? "" : fmt::format(" within {:.3g}", worst_->bound));
    if (!first_input_.empty()) result.reason += fmt::format(" ({})", first_input_);
    return result;
  }
  if (inputs_ == 0) {
    result.verdict = left_out_ > refused_ ? Verdict::undecided : Verdict::not_run;
    result.reason = left_out_why_.empty() ? "nothing compared" : left_out_why_;
    return result;
  }
  result.verdict = suspicious_ > 0 ? Verdict::suspect : Verdict::pass;
  if (suspicious_ > 0) result.reason = fmt::format("{} elements exceed the statistical bound", suspicious_);
  return result;
}

}  // namespace attest
