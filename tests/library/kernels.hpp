// Kernels of a user's own test, right and wrong in one way or another: decayed linear attention, one token at a time.
#pragma once
#include <attest/attest.hpp>
#include <bit>
#include <vector>

namespace attest {

// S <- decay S + k v^T, o = scale S^T q. `strict`: o without its own token.
inline void linear_stream(const Call& call, bool strict = false) {
  const auto q = call.input<float>("q"), k = call.input<float>("k"), v = call.input<float>("v");
  const auto o = call.output<float>("o");
  const CallTensor* decays = call.find_input("decay");
  const auto scale = static_cast<float>(call.option("scale", 1));
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::size_t T = size(call.tokens), H = size(call.heads), d = size(call.key_dim),
                    dv = size(call.value_dim);
  for (std::size_t head = 0; head < size(call.batch) * H; ++head) {
    const float decay =
        decays ? call.input<float>("decay")[head % H] : static_cast<float>(call.option("decay", 1));
    std::vector<float> state(d * dv);
    for (std::size_t t = 0; t < T; ++t) {
      const std::size_t row = (head / H * T + t) * H + head % H;
      std::vector<float> sum(dv);
      const auto read = [&] {
        for (std::size_t i = 0; i < d; ++i)
          for (std::size_t c = 0; c < dv; ++c) sum[c] += scale * q[row * d + i] * state[i * dv + c];
      };
      if (strict) read();
      for (std::size_t i = 0; i < d; ++i)
        for (std::size_t c = 0; c < dv; ++c)
          state[i * dv + c] = decay * state[i * dv + c] + k[row * d + i] * v[row * dv + c];
      if (!strict) read();
      for (std::size_t c = 0; c < dv; ++c) o[row * dv + c] = sum[c];
    }
  }
}

// The same in bf16 around fp32, rounded to nearest, ties to even; any NaN becomes `nan`.
inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
inline std::uint16_t to_bf16(float x, std::uint16_t nan) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return x != x ? nan : static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void linear_stream_bf16(const Call& call, std::uint16_t nan) {
  Call wide = call;
  std::vector<std::vector<float>> values;
  for (CallTensor& tensor : wide.inputs) {
    if (tensor.element != Element::bfloat16) continue;
    auto& floats = values.emplace_back();
    for (const std::uint16_t bits : call.input<std::uint16_t>(tensor.name)) floats.push_back(from_bf16(bits));
    tensor.element = Element::float32, tensor.data = floats.data();
  }
  const auto o = call.output<std::uint16_t>("o");
  std::vector<float> result(o.size());
  wide.outputs.at(0).element = Element::float32, wide.outputs.at(0).data = result.data();
  linear_stream(wide);
  for (std::size_t i = 0; i < o.size(); ++i) o[i] = to_bf16(result[i], nan);
}

inline KernelUnderTest linear_kernel(std::function<void(const Call&)> run) {
  return {.name = "mine",
          .op = "linear",
          .form = "stream",
          .contract = "input=fp32 output=fp32",
          .limits = "t=0..4096",
          .run = std::move(run)};
}
inline KernelUnderTest right_kernel() {
  return linear_kernel([](const Call& call) { linear_stream(call); });
}
inline KernelUnderTest strict_kernel() {
  return linear_kernel([](const Call& call) { linear_stream(call, true); });
}

}  // namespace attest
