#include "reference/tensor/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "reference/numeric/format.hpp"
#include "reference/tensor/atomic_file.hpp"

namespace attest {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is read as the machine's own numbers");

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::size_t size;
  bool floating;
};

constexpr std::array dtype_table{
    DtypeRow{Dtype::f64, "F64", 8, true},         DtypeRow{Dtype::f32, "F32", 4, true},
    DtypeRow{Dtype::f16, "F16", 2, true},         DtypeRow{Dtype::bf16, "BF16", 2, true},
    DtypeRow{Dtype::f8_e4m3, "F8_E4M3", 1, true}, DtypeRow{Dtype::f8_e5m2, "F8_E5M2", 1, true},
    DtypeRow{Dtype::i64, "I64", 8, false},        DtypeRow{Dtype::i32, "I32", 4, false},
    DtypeRow{Dtype::i16, "I16", 2, false},        DtypeRow{Dtype::i8, "I8", 1, false},
    DtypeRow{Dtype::u64, "U64", 8, false},        DtypeRow{Dtype::u32, "U32", 4, false},
    DtypeRow{Dtype::u16, "U16", 2, false},        DtypeRow{Dtype::u8, "U8", 1, false},
    DtypeRow{Dtype::boolean, "BOOL", 1, false},
};

const DtypeRow& row(Dtype dtype) { return dtype_table[static_cast<std::size_t>(dtype)]; }

std::string dtype_names() {
  std::string names;
  for (const DtypeRow& entry : dtype_table)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  return names;
}

// Bytes of a tensor of this shape; nothing if the count, zero dimensions read as 1, does not fit in 63 bits.
std::optional<std::uint64_t> byte_size(std::span<const std::int64_t> shape, Dtype dtype) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(dtype));
  for (const std::int64_t length : shape) {
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(length, 1), &bytes)) return std::nullopt;
  }
  return std::ranges::find(shape, 0) != shape.end() ? 0 : static_cast<std::uint64_t>(bytes);
}

std::string where_tensor(std::string_view name) { return "tensor " + in_quotes(name); }

// Follows the JSON events through the only structure a header may have. No event opens a nesting that the
// format does not have, so the depth is bounded by construction.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& label) : label_(label) {}

  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::map<std::string, std::string> metadata;

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected(printable(text, 40)); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        unexpected(fmt::format("{}", value));
      if (current_.shape.size() == SafetensorsFile::max_rank) {
        fail(where(),
             fmt::format("more than {0} dimensions, expected at most {0}", SafetensorsFile::max_rank));
      }
      current_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::offsets && offsets_seen_ < 2) {
      (offsets_seen_++ == 0 ? current_.begin : current_.end) = value;
    } else {
      unexpected(fmt::format("{}", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata.emplace(key_, value);
    } else if (place_ == Place::entry && key_ == "dtype") {
      const auto dtype = dtype_from_name(value);
      if (!dtype) fail(where(), fmt::format("found {}, expected one of {}", in_quotes(value), dtype_names()));
      current_.dtype = *dtype;
    } else {
      unexpected("the string " + in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::document) {
      place_ = Place::root;
    } else if (place_ == Place::root && key_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      place_ = Place::entry;
      current_ = TensorInfo{.name = key_, .shape = {}};
      fields_seen_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    const std::string_view place = place_ == Place::entry ? "field" : "key";
    if (place_ == Place::entry && name != "dtype" && name != "shape" && name != "data_offsets") {
      fail(where_tensor(current_.name),
           fmt::format("unknown field {}, expected dtype, shape and data_offsets alone", in_quotes(name)));
    }
    const bool again = place_ == Place::entry ? std::ranges::find(fields_seen_, name) != fields_seen_.end()
                       : place_ == Place::metadata
                           ? metadata.contains(name)
                           : tensors.contains(name) || (name == "__metadata__" && metadata_seen_);
    if (again)
      fail(container(), fmt::format("{} {} twice, expected each {} once", place, in_quotes(name), place));
    if (place_ == Place::entry) fields_seen_.push_back(name);
    if (place_ == Place::root && name == "__metadata__") metadata_seen_ = true;
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::entry) {
      for (const std::string_view field : {"dtype", "shape", "data_offsets"}) {
        if (std::ranges::find(fields_seen_, field) == fields_seen_.end()) {
          fail(where_tensor(current_.name),
               fmt::format("{} missing, expected dtype, shape and data_offsets", field));
        }
      }
      tensors.emplace(current_.name, current_);
    }
    place_ = place_ == Place::root ? Place::document : Place::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::entry || key_ == "dtype") unexpected("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offsets_seen_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_seen_ != 2) unexpected("fewer");
    place_ = Place::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view reason = error.what();
    for (const std::string_view prefix : {"] ", "column "}) {
      if (const auto at = reason.find(prefix); at != reason.npos) reason.remove_prefix(at + prefix.size());
    }
    if (const auto digits = reason.find_first_not_of("0123456789"); reason.substr(digits).starts_with(": ")) {
      reason.remove_prefix(digits + 2);
    }
    fail(fmt::format("header byte {}", position),
         fmt::format("not valid JSON ({}), expected a JSON object", printable(reason, 160)));
  }

 private:
  enum class Place { document, root, metadata, entry, shape, offsets };

  [[noreturn]] void fail(const std::string& where, const std::string& what) const {
    throw BadInput(fmt::format("{}: {}: {}", label_, where, what));
  }

  [[noreturn]] void unexpected(const std::string& found) const {
    fail(where(), fmt::format("found {}, expected {}", found, expected()));
  }

  std::string container() const {
    return place_ == Place::root       ? "header"
           : place_ == Place::metadata ? "__metadata__"
                                       : where_tensor(current_.name);
  }

  std::string where() const {
    switch (place_) {
      case Place::document:
        return "header";
      case Place::root:
        return key_ == "__metadata__" ? "__metadata__" : where_tensor(key_);
      case Place::metadata:
        return "__metadata__: " + in_quotes(key_);
      default:
        return where_tensor(current_.name) + ": " + key_;
    }
  }

  std::string_view expected() const {
    switch (place_) {
      case Place::document:
        return "a JSON object";
      case Place::root:
        return key_ == "__metadata__" ? "an object of strings"
                                      : "an object with dtype, shape and data_offsets";
      case Place::metadata:
        return "a string";
      case Place::shape:
        return "integers from 0 to 2^63 - 1";
      case Place::offsets:
        return "two integers from 0 to 2^64 - 1";
      case Place::entry:
        break;
    }
    return key_ == "dtype"   ? "a name of a dtype"
           : key_ == "shape" ? "an array of integers from 0 to 2^63 - 1"
                             : "an array of two integers from 0 to 2^64 - 1";
  }

  const std::string& label_;
  Place place_ = Place::document;
  std::string key_;
  TensorInfo current_;
  std::vector<std::string> fields_seen_;
  int offsets_seen_ = 0;
  bool metadata_seen_ = false;
};

// The offsets of one tensor against its own shape and the size of the data; the text of what is wrong, or
// empty.
std::string extent_fault(const TensorInfo& info, std::uint64_t data_size) {
  const std::string offsets = fmt::format("data_offsets: [{}, {}]", info.begin, info.end);
  const auto bytes = byte_size(info.shape, info.dtype);
  if (!bytes)
    return fmt::format("shape: {} of {} overflows, expected less than 2^63 bytes",
                       printable(shape_text(info.shape), 200), dtype_name(info.dtype));
  if (info.begin > info.end) return offsets + " is reversed, expected [begin, end] with begin <= end";
  if (info.end > data_size) {
    return fmt::format(
        "{} exceeds the data, expected an end within the {} bytes behind the header (truncated file?)",
        offsets, data_size);
  }
  if (info.end - info.begin != *bytes) {
    return fmt::format("{} is {} bytes, expected {} for shape {} of {}", offsets, info.end - info.begin,
                       *bytes, printable(shape_text(info.shape), 200), dtype_name(info.dtype));
  }
  return {};
}

// convert(element) for every element of type Stored.
template <class Stored, class Value, class Convert>
std::vector<Value> convert_all(std::span<const std::byte> bytes, Convert convert) {
  std::vector<Value> values(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored element;
    std::memcpy(&element, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(element);
  }
  return values;
}

class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, const std::string& label) : label_(label) {
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0) fail("cannot be opened", errno);
    struct stat status;
    if (fstat(descriptor_, &status) != 0) fail("cannot be opened", errno);
    if (S_ISDIR(status.st_mode)) fail("cannot be read", EISDIR);
    if (!S_ISREG(status.st_mode)) throw BadInput(label + ": not a regular file, expected a safetensors file");
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  std::uint64_t size() const { return size_; }

  void read_exactly(std::span<std::byte> target) {
    while (!target.empty()) {
      const ssize_t got = ::read(descriptor_, target.data(), target.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read", errno);
      if (got == 0) throw BadInput(label_ + ": became shorter while it was read, expected a complete file");
      target = target.subspan(static_cast<std::size_t>(got));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view action, int error) {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
    throw BadInput(fmt::format("{}: {}: {}, expected a safetensors file", label_, action,
                               std::generic_category().message(error)));
  }

  const std::string& label_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// The header's length from the first eight bytes of a file of `file_size` bytes.
std::uint64_t header_length(std::uint64_t length, std::uint64_t file_size, const std::string& label) {
  const auto fail = [&](const std::string& what) {
    throw BadInput(fmt::format("{}: header length: {}", label, what));
  };
  if (length > SafetensorsFile::max_header_bytes) {
    fail(fmt::format("{} bytes, expected at most {} (not a safetensors file?)", length,
                     SafetensorsFile::max_header_bytes));
  }
  if (length > file_size - 8) {
    fail(fmt::format("{} bytes, expected at most the {} that follow it (truncated file?)", length,
                     file_size - 8));
  }
  return length;
}

void require_length_field(std::uint64_t file_size, const std::string& label) {
  if (file_size < 8) {
    throw BadInput(
        fmt::format("{}: header length: the file has {} bytes, expected at least 8", label, file_size));
  }
}

std::unique_ptr<std::byte[]> allocate(std::uint64_t size, const std::string& label) {
  try {
    return std::make_unique_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    throw BadInput(fmt::format("{}: data: {} bytes, expected no more than fits in memory", label, size));
  }
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return row(dtype).name; }
std::size_t dtype_size(Dtype dtype) { return row(dtype).size; }
bool is_floating(Dtype dtype) { return row(dtype).floating; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  const auto found = std::ranges::find(dtype_table, name, &DtypeRow::name);
  return found == dtype_table.end() ? std::nullopt : std::optional(found->dtype);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t TensorInfo::count() const {
  std::int64_t product = 1;
  for (const std::int64_t length : shape) product *= length;
  return product;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : label_(printable(path.native(), 200)) {
  FileDescriptor file(path, label_);
  require_length_field(file.size(), label_);
  std::uint64_t length = 0;
  file.read_exactly(std::as_writable_bytes(std::span(&length, 1)));
  length = header_length(length, file.size(), label_);
  std::string header(length, '\0');
  file.read_exactly(std::as_writable_bytes(std::span(header)));
  data_size_ = file.size() - 8 - length;
  parse_header(header, data_size_);
  data_ = allocate(data_size_, label_);
  file.read_exactly({data_.get(), data_size_});
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> file, std::string label)
    : label_(std::move(label)) {
  require_length_field(file.size(), label_);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  length = header_length(length, file.size(), label_);
  const auto data = file.subspan(8 + length);
  data_size_ = data.size();
  parse_header({reinterpret_cast<const char*>(file.data()) + 8, length}, data_size_);
  data_ = allocate(data_size_, label_);
  std::ranges::copy(data, data_.get());
}

void SafetensorsFile::parse_header(std::string_view header, std::uint64_t data_size) {
  if (!header.starts_with('{')) {
    throw BadInput(
        fmt::format("{}: header byte 1: {}, expected a JSON object that starts with '{{'", label_,
                    header.empty() ? "the header is empty" : "found " + in_quotes(header.substr(0, 1))));
  }
  if (const auto at = header.find('\0'); at != header.npos) {  // the JSON parser would take it for the end
    throw BadInput(fmt::format("{}: header byte {}: not valid JSON (a zero byte), expected a JSON object",
                               label_, at + 1));
  }
  HeaderReader reader(label_);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);

  std::vector<const TensorInfo*> in_order;
  for (const auto& [name, info] : reader.tensors) {
    if (const std::string fault = extent_fault(info, data_size); !fault.empty()) throw error(name, fault);
    in_order.push_back(&info);
  }
  std::ranges::sort(in_order, {}, [](const TensorInfo* info) { return std::pair(info->begin, info->end); });
  std::uint64_t covered = 0;
  for (const TensorInfo* info : in_order) {
    if (info->begin != covered) {
      throw error(
          info->name,
          fmt::format("data_offsets: [{}, {}] {}, expected to begin at {}, where the tensor before it ends",
                      info->begin, info->end, info->begin < covered ? "overlaps" : "leaves a hole", covered));
    }
    covered = info->end;
  }
  if (covered != data_size) {
    throw BadInput(fmt::format("{}: data: {} bytes behind the header, expected the {} that the tensors cover",
                               label_, data_size, covered));
  }
  tensors_ = std::move(reader.tensors);
  metadata_ = std::move(reader.metadata);
}

const TensorInfo& SafetensorsFile::info(std::string_view name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  std::string names;
  for (const auto& entry : tensors_) {
    names += (names.empty() ? "" : ", ") + in_quotes(entry.first);
    if (names.size() > 300) {
      names += ", ...";
      break;
    }
  }
  throw error(name, fmt::format("missing, expected a tensor of that name (the file has {})",
                                names.empty() ? "no tensors" : names));
}

std::span<const std::byte> SafetensorsFile::load(std::string_view name) const {
  const TensorInfo& tensor = info(name);
  return data().subspan(tensor.begin, tensor.end - tensor.begin);
}

std::vector<double> SafetensorsFile::as_double(std::string_view name) const try {
  const auto bytes = load(name);
  const auto quiet = [](double value) {
    return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  };
  const auto decoder = [&](const Format* format) {
    return [=](std::uint64_t bits) { return quiet(decode(*format, bits)); };
  };
  switch (const Dtype dtype = info(name).dtype) {
    case Dtype::f64:
      return convert_all<double, double>(bytes, quiet);
    case Dtype::f32:
      return convert_all<float, double>(bytes, quiet);
    case Dtype::f16:
      return convert_all<std::uint16_t, double>(bytes, decoder(&fp16));
    case Dtype::bf16:
      return convert_all<std::uint16_t, double>(bytes, decoder(&bf16));
    case Dtype::f8_e4m3:
      return convert_all<std::uint8_t, double>(bytes, decoder(&fp8_e4m3));
    case Dtype::f8_e5m2:
      return convert_all<std::uint8_t, double>(bytes, decoder(&fp8_e5m2));
    default:
      throw error(name, fmt::format("dtype: {}, expected F64, F32, F16, BF16, F8_E4M3 or F8_E5M2",
                                    dtype_name(dtype)));
  }
} catch (const std::bad_alloc&) {
  throw error(name, fmt::format("shape {} needs {} bytes as F64, expected a size for which there is memory",
                                shape_text(info(name).shape), 8 * info(name).count()));
}

std::vector<std::int64_t> SafetensorsFile::as_int64(std::string_view name) const {
  const auto bytes = load(name);
  const auto widen = [&](auto value) -> std::int64_t {
    if (!std::in_range<std::int64_t>(value))
      throw error(name, fmt::format("the value {}, expected at most 2^63 - 1", value));
    return static_cast<std::int64_t>(value);
  };
  const auto truth = [&](std::uint8_t value) -> std::int64_t {
    if (value > 1) throw error(name, fmt::format("the value {}, expected 0 or 1 in BOOL", value));
    return value;
  };
  switch (const Dtype dtype = info(name).dtype) {
    case Dtype::i64:
      return convert_all<std::int64_t, std::int64_t>(bytes, widen);
    case Dtype::i32:
      return convert_all<std::int32_t, std::int64_t>(bytes, widen);
    case Dtype::i16:
      return convert_all<std::int16_t, std::int64_t>(bytes, widen);
    case Dtype::i8:
      return convert_all<std::int8_t, std::int64_t>(bytes, widen);
    case Dtype::u64:
      return convert_all<std::uint64_t, std::int64_t>(bytes, widen);
    case Dtype::u32:
      return convert_all<std::uint32_t, std::int64_t>(bytes, widen);
    case Dtype::u16:
      return convert_all<std::uint16_t, std::int64_t>(bytes, widen);
    case Dtype::u8:
      return convert_all<std::uint8_t, std::int64_t>(bytes, widen);
    case Dtype::boolean:
      return convert_all<std::uint8_t, std::int64_t>(bytes, truth);
    default:
      throw error(name, fmt::format("dtype: {}, expected an integer dtype or BOOL", dtype_name(dtype)));
  }
}

BadInput SafetensorsFile::error(std::string_view name, std::string_view what) const {
  return BadInput(fmt::format("{}: {}: {}", label_, where_tensor(name), what));
}

void SafetensorsWriter::add(std::string name, Dtype dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> bytes) {
  const auto misuse = [&](std::string_view what) {
    throw std::invalid_argument(fmt::format("tensor {}: {}", in_quotes(name), what));
  };
  if (name == "__metadata__" || !is_valid_utf8(name)) misuse("not a legal name");
  if (std::ranges::any_of(tensors_, [&](const Tensor& other) { return other.info.name == name; }))
    misuse("added twice");
  if (shape.size() > SafetensorsFile::max_rank) misuse("too many dimensions");
  if (std::ranges::any_of(shape, [](std::int64_t length) { return length < 0; }))
    misuse("negative dimension");
  if (byte_size(shape, dtype) != bytes.size())
    misuse("the data do not have the size that shape and dtype ask for");
  tensors_.push_back(
      {.info = {std::move(name), dtype, std::move(shape)}, .bytes = {bytes.begin(), bytes.end()}});
}

void SafetensorsWriter::add(std::string name, std::vector<std::int64_t> shape,
                            std::span<const double> values) {
  add(std::move(name), Dtype::f64, std::move(shape), std::as_bytes(values));
}

void SafetensorsWriter::add(std::string name, std::vector<std::int64_t> shape,
                            std::span<const float> values) {
  add(std::move(name), Dtype::f32, std::move(shape), std::as_bytes(values));
}

void SafetensorsWriter::add(std::string name, std::vector<std::int64_t> shape,
                            std::span<const std::int64_t> values) {
  add(std::move(name), Dtype::i64, std::move(shape), std::as_bytes(values));
}

void SafetensorsWriter::set_metadata(std::string key, std::string value) {
  if (!is_valid_utf8(key) || !is_valid_utf8(value)) {
    throw BadInput(fmt::format("metadata {}: {}, expected valid UTF-8", in_quotes(key), in_quotes(value)));
  }
  metadata_[std::move(key)] = std::move(value);
}

std::vector<const SafetensorsWriter::Tensor*> SafetensorsWriter::in_file_order() const {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors_) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::greater{},
                           [](const Tensor* tensor) { return dtype_size(tensor->info.dtype); });
  return order;
}

std::string SafetensorsWriter::header() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata_.empty()) json["__metadata__"] = metadata_;
  std::uint64_t offset = 0;
  for (const Tensor* tensor : in_file_order()) {
    const std::uint64_t begin = std::exchange(offset, offset + tensor->bytes.size());
    json[tensor->info.name] = {{"dtype", dtype_name(tensor->info.dtype)},
                               {"shape", tensor->info.shape},
                               {"data_offsets", {begin, offset}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > SafetensorsFile::max_header_bytes)
    throw std::invalid_argument("safetensors header beyond its limit");
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

void SafetensorsWriter::write(const std::filesystem::path& path) const {
  AtomicFile file(path);
  file.write(header());
  for (const Tensor* tensor : in_file_order()) file.write(std::span(tensor->bytes));
  file.commit();
}

std::vector<std::byte> SafetensorsWriter::to_bytes() const {
  const std::string start = header();
  std::vector<std::byte> bytes(start.size());
  std::memcpy(bytes.data(), start.data(), start.size());
  for (const Tensor* tensor : in_file_order())
    bytes.insert(bytes.end(), tensor->bytes.begin(), tensor->bytes.end());
  return bytes;
}

}  // namespace attest
