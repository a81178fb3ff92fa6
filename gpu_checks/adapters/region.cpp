#include "gpu_checks/adapters/region.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attest {
namespace {

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

std::byte pattern(std::size_t at) { return static_cast<std::byte>((at * 0x9e3779b97f4a7c15u) >> 56 | 1); }

// The bits of an element that nobody wrote. Of two bytes a signalling NaN, which no arithmetic makes and every operation
// makes quiet: all bits set is what PyTorch writes for a NaN in bf16.
std::uint64_t poison(const Passed& tensor) {
  if (tensor.element_bytes() == 2) return tensor.format == bf16 ? 0xffb5 : 0xfdb5;
  return ~std::uint64_t{0} >> (64 - 8 * tensor.element_bytes());
}

std::uint64_t quieted(const Passed& tensor, std::uint64_t bits) {
  if (tensor.element_bytes() != 2) return bits;
  return bits | (tensor.format == bf16 ? 0x0040 : 0x0200);
}

bool is_poison(const Passed& tensor, const std::byte* at) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, at, tensor.element_bytes());
  return bits == poison(tensor) || bits == quieted(tensor, poison(tensor));
}

// Row-major; padded: three elements more between rows, and as many rows and heads again as keep every stride odd.
std::vector<Index> strides_of(const std::vector<Index>& shape, Layout layout) {
  std::vector<Index> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = std::max<Index>(shape[d], 1) * strides[d];
    if (layout == Layout::padded) strides[d - 1] += 3 * strides[d];
  }
  return strides;
}

std::string index_text(const std::vector<Index>& shape, Index flat) {
  std::string text;
  for (std::size_t d = shape.size(); d-- > 0; flat /= std::max<Index>(shape[d], 1))
    text = std::to_string(flat % std::max<Index>(shape[d], 1)) + (text.empty() ? "" : ", ") + text;
  return "[" + text + "]";
}

// int64, float or bfloat, by the numbers of DLPack.
int type_code(const Passed& tensor) { return tensor.integer ? 0 : tensor.format == bf16 ? 4 : 2; }

}  // namespace

Region::Region(std::vector<Passed> tensors, Layout layout, bool outputs) {
  std::size_t end = 0;
  for (Passed& tensor : tensors) {
    Placed& placed = tensors_.emplace_back();
    static_cast<Passed&>(placed) = std::move(tensor);
    placed.strides = strides_of(placed.shape, layout);
    placed.at = round_up(end + zone, 256);
    if (layout == Layout::padded) placed.byte_offset = 5 * placed.element_bytes();
    Index extent = element_count(placed.shape) > 0 ? 1 : 0;
    for (std::size_t d = 0; extent > 0 && d < placed.shape.size(); ++d)
      extent += (placed.shape[d] - 1) * placed.strides[d];
    end = placed.first() + static_cast<std::size_t>(extent) * placed.element_bytes();
  }
  image_.resize(round_up(end + zone, zone), std::byte{0xff});
  if (outputs)
    for (std::size_t at = 0; at < image_.size(); ++at) image_[at] = pattern(at);
  for (const Placed& tensor : tensors_)
    for_each_element(tensor, [&, unwritten = poison(tensor)](Index flat, std::size_t at) {
      if (tensor.values)
        write_element(tensor, (*tensor.values)[static_cast<std::size_t>(flat)], &image_[at]);
      else
        std::memcpy(&image_[at], &unwritten, tensor.element_bytes());
    });
}

nlohmann::json Region::description() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Placed& tensor : tensors_)
    list.push_back({{"name", tensor.name},
                    {"code", type_code(tensor)},
                    {"bits", tensor.element_bytes() * 8},
                    {"shape", tensor.shape},
                    {"strides", tensor.strides},
                    {"at", tensor.at},
                    {"offset", tensor.byte_offset}});
  return {{"bytes", image_.size()}, {"tensors", list}};
}

std::string Region::place_of(std::size_t byte) const {
  const Placed* nearest = nullptr;
  for (const Placed& tensor : tensors_)
    if (!nearest || tensor.first() <= byte) nearest = &tensor;
  if (!nearest) return fmt::format("byte {} of the outputs", byte);
  if (byte < nearest->first())
    return fmt::format("{} bytes before the output {}", nearest->first() - byte, nearest->name);
  std::size_t end = nearest->first();
  for_each_element(*nearest, [&](Index, std::size_t at) { end = at + nearest->element_bytes(); });
  if (byte >= end)
    return fmt::format("byte {} after the end of the output {}", byte - end + 1, nearest->name);
  return fmt::format("between the rows of the output {}, {} bytes from its first element", nearest->name,
                     byte - nearest->first());
}

std::string Region::fault(const std::vector<std::byte>& bytes) const {
  std::vector<std::byte> expected = image_;
  for (const Placed& tensor : tensors_)
    for_each_element(tensor, [&](Index, std::size_t at) {
      std::memcpy(&expected[at], &bytes[at], tensor.element_bytes());
    });
  const auto [wanted, found] = std::mismatch(expected.begin(), expected.end(), bytes.begin());
  if (wanted != expected.end())
    return "wrote where no output lies: " + place_of(static_cast<std::size_t>(wanted - expected.begin()));
  for (const Placed& tensor : tensors_) {
    Index unwritten = 0, first = 0;
    for_each_element(tensor, [&](Index flat, std::size_t at) {
      if (is_poison(tensor, &bytes[at]) && unwritten++ == 0) first = flat;
    });
    if (unwritten > 0)
      return fmt::format(
          "left {} of {} elements of the output {} unwritten, or made them of memory that nobody wrote, the "
          "first at {}",
          unwritten, element_count(tensor.shape), tensor.name, index_text(tensor.shape, first));
  }
  return {};
}

Tensors Region::values(const std::vector<std::byte>& bytes) const {
  Tensors values;
  for (const Placed& tensor : tensors_) {
    Tensor& out = values[tensor.name];
    out.shape = tensor.shape;
    out.data.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    for_each_element(tensor, [&](Index flat, std::size_t at) {
      out.data[static_cast<std::size_t>(flat)] = read_element(tensor, &bytes[at]);
    });
  }
  return values;
}

}  // namespace attest
