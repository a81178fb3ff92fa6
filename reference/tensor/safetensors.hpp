// Reading and writing the safetensors format: a header length (8 bytes, little endian), a JSON header
// {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"KEY": "VALUE"}}
// and the data, to which the offsets are relative. The tensors must cover the data without a gap or an
// overlap. Source: github.com/huggingface/safetensors, README "Format". Beyond it, a tensor's element count
// with every zero dimension read as 1 must fit in 63 bits, so that strides can be computed for every shape
// that loads. Everything wrong with a file is a BadInput that names file, tensor, field, what was found and
// what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensor/bad_input.hpp"

namespace attest {

enum class Dtype { f64, f32, f16, bf16, f8_e4m3, f8_e5m2, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::string_view dtype_name(Dtype dtype);  // as in the file: "BF16"
std::optional<Dtype> dtype_from_name(std::string_view name);
std::size_t dtype_size(Dtype dtype);  // bytes of an element
bool is_floating(Dtype dtype);

std::string shape_text(std::span<const std::int64_t> shape);  // "[2, 3]"

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::f64;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes of the data
  std::int64_t count() const;        // elements
};

class SafetensorsFile {
 public:
  static constexpr std::uint64_t max_header_bytes = 100'000'000;
  static constexpr std::size_t max_rank = 64;

  explicit SafetensorsFile(const std::filesystem::path& path);
  // The same from memory (copied); `label` stands for the path in messages.
  SafetensorsFile(std::span<const std::byte> file, std::string label);

  const std::string& label() const { return label_; }
  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const std::byte> data() const { return {data_.get(), data_size_}; }

  bool has(std::string_view name) const { return tensors_.contains(name); }
  const TensorInfo& info(std::string_view name) const;

  // The bytes of a tensor, row-major and little endian, not aligned; valid as long as this object.
  std::span<const std::byte> load(std::string_view name) const;
  // Exact values of a floating tensor; any NaN becomes the quiet NaN.
  std::vector<double> as_double(std::string_view name) const;
  // Exact values of an integer or boolean tensor.
  std::vector<std::int64_t> as_int64(std::string_view name) const;

  // The error that says what is wrong with one of this file's tensors: throw file.error("q", "shape ...,
  // expected ...").
  BadInput error(std::string_view name, std::string_view what) const;

 private:
  void parse_header(std::string_view header, std::uint64_t data_size);

  std::string label_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<std::byte[]> data_;
  std::size_t data_size_ = 0;
};

// Collects tensors (copied) and writes them whole or not at all. Wide dtypes come first, so that every tensor
// is aligned to its element. Misuse by the program (a name twice, a size that does not fit) is
// std::invalid_argument.
class SafetensorsWriter {
 public:
  void add(std::string name, Dtype dtype, std::vector<std::int64_t> shape, std::span<const std::byte> bytes);
  void add(std::string name, std::vector<std::int64_t> shape, std::span<const double> values);
  void add(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);
  void add(std::string name, std::vector<std::int64_t> shape, std::span<const std::int64_t> values);
  void set_metadata(std::string key, std::string value);

  void write(const std::filesystem::path& path) const;
  std::vector<std::byte> to_bytes() const;

 private:
  struct Tensor {
    TensorInfo info;
    std::vector<std::byte> bytes;
  };
  std::vector<const Tensor*> in_file_order() const;
  std::string header() const;  // with its length before it

  std::vector<Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace attest
