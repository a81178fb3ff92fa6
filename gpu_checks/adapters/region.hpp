// The memory in which tensors are handed to a plug-in: one region for the inputs, which the plug-in's process maps
// read-only, and one for the outputs. Tensors begin at multiples of 256 bytes and have zones around them: NaN beside
// inputs, so that reading beyond one shows in the values, and a pattern beside outputs, in which every write shows.
// Elements of outputs are poisoned with a NaN that no arithmetic makes: all bits set, of two bytes a signalling one.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpu_checks/adapters/announcement.hpp"

namespace attest {

enum class Layout { contiguous, padded };  // padded: rows apart, heads and tokens too, and an offset

struct Placed : Passed {
  std::vector<Index> strides;   // in elements
  std::size_t at = 0;           // byte of the region that the tensor's data pointer names
  std::size_t byte_offset = 0;  // of the first element from there
  std::size_t first() const { return at + byte_offset; }
};

class Region {
 public:
  static constexpr std::size_t zone = 4096;

  Region(std::vector<Passed> tensors, Layout layout, bool outputs);
  const std::vector<std::byte>& image() const { return image_; }  // what the plug-in finds
  const std::vector<Placed>& tensors() const { return tensors_; }
  nlohmann::json description() const;

  // Of outputs: empty, or what a kernel that left `bytes` did wrong; then the values.
  std::string fault(const std::vector<std::byte>& bytes) const;
  Tensors values(const std::vector<std::byte>& bytes) const;

 private:
  std::string place_of(std::size_t byte) const;
  std::vector<Placed> tensors_;
  std::vector<std::byte> image_;
};

// Calls f(flat index, byte of the region) for every element, in row-major order.
template <class F>
void for_each_element(const Placed& tensor, F&& f) {
  const std::size_t rank = tensor.shape.size();
  const Index count = element_count(tensor.shape);
  std::vector<Index> index(rank, 0);
  Index offset = 0;
  for (Index flat = 0; flat < count; ++flat) {
    f(flat, tensor.first() + static_cast<std::size_t>(offset) * tensor.element_bytes());
    for (std::size_t d = rank; d-- > 0;) {
      offset += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      offset -= tensor.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
}

}  // namespace attest
