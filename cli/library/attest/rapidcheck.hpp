// RapidCheck generators of what attest checks kernels on: link attest::rapidcheck.
//   rc::check("mine is right on every case", [] {
//     const std::string line = *attest::cases(mine);
//     RC_ASSERT(!attest::check_case(mine, line).failed());
//   });
// They shrink towards one token, one head, d = dv = 1, the plainest recipe and no options. Values keep bit patterns:
// nothing comes from RapidCheck's own floating-point generator, which draws no subnormals and shrinks poorly.
// Sizes are sizes of tensors in elements, limits inclusive; what a kernel does not take is left out of its cases.
#pragma once
#include <rapidcheck.h>

#include <attest/attest.hpp>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace attest {

struct CaseLimits {
  int tokens = 40, key_dim = 12, value_dim = 12, heads = 2, batch = 2;
};

namespace detail {

inline bool takes(const KernelUnderTest& kernel, const std::string& name) {
  std::istringstream words(kernel.takes);
  for (std::string word; words >> word;)
    if (word == name) return true;
  return false;
}

// Empty or " KEY=VALUE", the plainest first.
inline rc::Gen<std::string> option(const KernelUnderTest& kernel, const std::string& key,
                                   std::vector<std::string> values) {
  if (!takes(kernel, key)) return rc::gen::just(std::string());
  return rc::gen::map(rc::gen::inRange<std::size_t>(0, values.size() + 1), [=](std::size_t i) {
    return i == 0 ? std::string() : ' ' + key + '=' + values[i - 1];
  });
}

inline rc::Gen<std::string> one_of(const std::string& key, std::vector<std::string> names) {
  return rc::gen::map(rc::gen::inRange<std::size_t>(0, names.size()),
                      [=](std::size_t i) { return ' ' + key + '=' + names[i]; });
}

inline rc::Gen<std::string> size(const std::string& key, int most) {
  return rc::gen::map(rc::gen::inRange(1, most + 1),
                      [=](int n) { return ' ' + key + '=' + std::to_string(n); });
}

// A value for one element: small integers and powers of two of either sign, 0 the plainest.
inline rc::Gen<double> plain_value() {
  return rc::gen::map(rc::gen::inRange(0, 60), [](int i) {
    const double size = i < 10 ? i / 2 : std::ldexp(1.0, (i - 10) / 2 - 12);
    return i % 2 ? -size : size;
  });
}

}  // namespace detail

// Case lines of the kernel's operator: shape, options, recipe, gates and seed.
inline rc::Gen<std::string> cases(const KernelUnderTest& kernel, const CaseLimits& limits = {}) {
  const auto joined = [start = kernel.op + " variant=" + kernel.variant](const auto& parts) {
    return std::apply([&](const auto&... part) { return (start + ... + part); }, parts);
  };
  const auto seed = rc::gen::map(rc::gen::noShrink(rc::gen::arbitrary<std::uint32_t>()),
                                 [](std::uint32_t s) { return " seed=" + std::to_string(s); });
  return rc::gen::map(
      rc::gen::tuple(detail::size("T", limits.tokens), detail::size("d", limits.key_dim),
                     detail::size("dv", limits.value_dim), detail::size("H", limits.heads),
                     detail::size("B", limits.batch), detail::option(kernel, "scale", {"1/2", "5/16"}),
                     detail::option(kernel, "decay", {"1/2", "31/32"}),
                     detail::option(kernel, "ridge", {"1/2"}), detail::one_of("recipe", recipe_names()),
                     detail::one_of("gates", gate_recipe_names()), seed),
      joined);
}

// Inputs themselves: a drawn case in which some elements of q and v are replaced by small integers and powers of two.
inline rc::Gen<TestInput> inputs(const KernelUnderTest& kernel, const CaseLimits& limits = {}) {
  using Edit = std::tuple<bool, std::uint32_t, double>;  // of v rather than q, which element, its value
  const auto edit =
      rc::gen::tuple(rc::gen::arbitrary<bool>(), rc::gen::noShrink(rc::gen::arbitrary<std::uint32_t>()),
                     detail::plain_value());
  return rc::gen::map(rc::gen::pair(cases(kernel, limits), rc::gen::container<std::vector<Edit>>(edit)),
                      [](const std::pair<std::string, std::vector<Edit>>& drawn) {
                        TestInput input = draw_input(drawn.first);
                        for (const auto& [of_v, element, value] : drawn.second) {
                          std::vector<double>& data = input.fields.at(of_v ? "v" : "q").data;
                          data[element % data.size()] = value;
                        }
                        return input;
                      });
}

// Shapes, options and every value as a hexadecimal float, which repeats it to the bit.
inline void showValue(const TestInput& input, std::ostream& out) {
  for (const std::string& option : input.options) out << option << '\n';
  for (const auto& [name, values] : input.fields) {
    out << name << " [";
    for (const std::int64_t n : values.shape) out << ' ' << n;
    out << " ]:";
    for (const double value : values.data) {
      char text[32];
      std::snprintf(text, sizeof text, " %a", value);
      out << text;
    }
    out << '\n';
  }
}

}  // namespace attest
