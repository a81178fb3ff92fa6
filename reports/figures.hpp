// The figures of the page as gnuplot scripts, each with a title and a caption that says in words what to see.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/summary.hpp"

namespace attest {

struct Figure {
  std::string title;
  std::string caption;
  std::string script;
};

// Of the kernels of one operator and variant; a figure whose data no record holds is left out.
std::vector<Figure> operator_figures(std::span<const KernelSummary> kernels);

// Of the whole run, grouped by operator and variant: every kernel at a glance, and cancellation (M/|o|).
std::vector<Figure> run_figures(const std::vector<std::span<const KernelSummary>>& groups);

// Kernel names without the beginning that all of them share ("cpu.hla2.chunk" beside "cpu.hla2.scan":
// "chunk", "scan").
std::vector<std::string> short_names(std::span<const KernelSummary> kernels);

}  // namespace attest
