// What must hold for any bytes given to the safetensors reader: it refuses them with a BadInput of one
// bounded, printable line, or it loads them, and then every tensor lies inside the data, has the size that
// its shape and dtype ask for, shares no byte with another, can be decoded, and survives being written and
// read again. The reader is a template parameter so that the same check judges readers with a planted bug.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reference/tensor/safetensors.hpp"

namespace attest {

struct FuzzOutcome {
  bool loaded = false;
  std::string refusal;  // the message of a refused file
  std::string fault;    // what does not hold; empty if all is well
};

inline std::string message_fault(std::string_view message) {
  if (!message.starts_with("f: ")) return "the message does not begin with the file's name";
  if (message.find("expected") == message.npos) return "the message does not say what was expected";
  if (message.size() > 2000) return "the message is too long";
  const bool control = std::ranges::any_of(message, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return control || !is_valid_utf8(message) ? "the message is not printable on one line" : "";
}

// Whether the tensor's bytes lie within the data and are as many as its shape and dtype ask for.
inline std::string extent_fault(const TensorInfo& info, std::span<const std::byte> bytes,
                                std::span<const std::byte> data) {
  const auto address = [](const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  if (!bytes.empty() && (address(bytes.data()) < address(data.data()) || bytes.size() > data.size() ||
                         address(bytes.data()) - address(data.data()) > data.size() - bytes.size())) {
    return "a tensor reaches outside the data";
  }
  unsigned __int128 size = dtype_size(info.dtype);
  for (const std::int64_t length : info.shape) {
    if (length < 0) return "a dimension is negative";
    size *= static_cast<unsigned __int128>(std::max<std::int64_t>(length, 1));
    if (size >> 63 != 0) return "a shape is larger than any file";
  }
  if (std::ranges::find(info.shape, 0) != info.shape.end()) size = 0;
  return size == bytes.size() ? "" : "a tensor does not have the size of its shape";
}

template <class Reader>
std::string loaded_fault(const Reader& file) {
  SafetensorsWriter writer;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (const auto& [name, info] : file.tensors()) {
    const std::span<const std::byte> bytes = file.load(name);
    if (const std::string fault = extent_fault(info, bytes, file.data()); !fault.empty()) return fault;
    extents.emplace_back(info.begin, info.end);
    try {
      const std::size_t decoded =
          is_floating(info.dtype) ? file.as_double(name).size() : file.as_int64(name).size();
      if (decoded * dtype_size(info.dtype) != bytes.size()) return "a decoded tensor has the wrong length";
    } catch (const BadInput& error) {  // BOOL 2 and U64 beyond 2^63 - 1 load but have no value
      if (is_floating(info.dtype)) return std::string("a loaded floating tensor is refused: ") + error.what();
    }
    writer.add(name, info.dtype, info.shape, bytes);
  }
  std::ranges::sort(extents);
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : extents) {
    if (begin != std::exchange(covered, end)) return "the tensors overlap or leave a hole";
  }
  if (covered != file.data().size()) return "the tensors do not cover the data";

  for (const auto& [key, value] : file.metadata()) writer.set_metadata(key, value);
  const SafetensorsFile again(writer.to_bytes(), "written again");
  if (again.metadata() != file.metadata() || again.tensors().size() != file.tensors().size())
    return "not the same when written again";
  for (const auto& [name, info] : file.tensors()) {
    const TensorInfo& other = again.info(name);
    if (other.dtype != info.dtype || other.shape != info.shape ||
        !std::ranges::equal(again.load(name), file.load(name))) {
      return "a tensor is not the same when written again";
    }
  }
  return {};
}

template <class Reader>
FuzzOutcome examine(std::span<const std::byte> bytes) {
  FuzzOutcome outcome;
  try {
    const Reader file(bytes, "f");
    outcome.loaded = true;
    outcome.fault = loaded_fault(file);
  } catch (const BadInput& error) {
    outcome.refusal = error.what();
    outcome.fault = outcome.loaded ? std::string("refused after it was loaded: ") + error.what()
                                   : message_fault(error.what());
  } catch (const std::exception& error) {
    outcome.fault = std::string("an exception other than BadInput: ") + error.what();
  }
  return outcome;
}

}  // namespace attest
