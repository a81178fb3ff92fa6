#include "gpu_checks/battery/coverage.hpp"

#include <algorithm>

namespace attest {
namespace {

struct Part {
  const char* words;
  bool (*is_of)(const Declaration&);
  bool (*is_in)(const Problem&);
};

bool any(const Problem& problem, const char* field, double neutral) {
  const Tensor* tensor = problem.field(field);
  return tensor && std::ranges::any_of(tensor->data, [=](double x) { return x != neutral; });
}

constexpr const char* decay_words = "decay other than 1";

constexpr Part parts[] = {
    {"gates other than 0", [](const Declaration& d) { return d.gates; },
     [](const Problem& p) { return any(p, "g", 0) || any(p, "alpha", 1); }},
    {"gates given as alpha", [](const Declaration& d) { return d.gates; },
     [](const Problem& p) { return p.field("alpha") != nullptr; }},
    {decay_words, [](const Declaration& d) { return d.decay; },
     [](const Problem& p) { return (p.options.decay && *p.options.decay != 1) || any(p, "decay", 1); }},
    {"a ridge", [](const Declaration& d) { return d.ridge; },
     [](const Problem& p) { return p.options.ridge != 0; }},
    {"a scale of its own", [](const Declaration& d) { return d.unit_scale; },
     [](const Problem& p) { return p.options.scale && *p.options.scale != 1; }},
    {"normalize", [](const Declaration& d) { return d.normalize; },
     [](const Problem& p) { return p.options.normalize; }},
    {"an initial state", [](const Declaration& d) { return !d.moments.empty(); },
     [](const Problem& p) {
       return std::ranges::any_of(p.fields,
                                  [](const auto& f) { return f.first.starts_with("initial_state."); });
     }},
};

bool is_whole(const std::vector<BatteryEntry>& entries) { return entries.size() == battery_checks().size(); }

unsigned ran_with(const std::vector<BatteryEntry>& entries) {
  unsigned all = 0;
  for (const BatteryEntry& entry : entries) all |= entry.ran_with;
  return all;
}

}  // namespace

unsigned beyond_defaults(const Problem& problem) {
  unsigned bits = 0, bit = 1;
  for (const Part& part : parts) {
    if (part.is_in(problem)) bits |= bit;
    bit *= 2;
  }
  return bits;
}

std::string never_run_with(const BatteryContext& context, const std::vector<BatteryEntry>& entries) {
  if (!is_whole(entries)) return {};
  const unsigned seen = ran_with(entries);
  std::string text;
  unsigned bit = 1;
  for (const Part& part : parts) {
    if (part.is_of(context.declaration()) && !(seen & bit)) {
      text += (text.empty() ? "" : ", ") + std::string(part.words);
      if (part.words == decay_words && context.kernel.without_decay) text += " (the kernel takes no decay)";
    }
    bit *= 2;
  }
  return text;
}

bool lacks_what_defines_it(const BatteryContext& context, const std::vector<BatteryEntry>& entries) {
  return context.declaration().name == "retention" &&
         never_run_with(context, entries).find(decay_words) != std::string::npos;
}

}  // namespace attest
