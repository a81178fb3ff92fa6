// A minute of damaged files for the safetensors reader, and readers with planted bugs that the same run must
// expose. ATTEST_FUZZ_SECONDS, ATTEST_FUZZ_SEED and ATTEST_FUZZ_START (the number of the first input) replay
// or prolong a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fuzz/targets/examine_safetensors.hpp"
#include "tests/tensor/safetensors_mutator.hpp"
#include "tests/tensor/safetensors_text.hpp"

namespace attest {
namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

std::vector<std::vector<std::byte>> valid_files() {
  std::ifstream stream(tensor_test_data("interop.safetensors"), std::ios::binary);
  const std::string interop{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(interop));
  SafetensorsWriter attention;
  for (const char* name : {"q", "k", "v"})
    attention.add(name, {1, 3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  attention.add("cu_seqlens", {2}, std::vector<std::int64_t>{0, 3});
  attention.set_metadata("operator", "hla2");
  SafetensorsWriter small;
  small.add("x", {2}, std::vector<double>{1, 2});
  return {
      {bytes.begin(), bytes.end()}, attention.to_bytes(), small.to_bytes(), SafetensorsWriter().to_bytes()};
}

// A refusal without what differs from file to file: numbers, names in quotes, and what the parser read last.
std::string reason(std::string_view message) {
  std::string kept;
  bool in_quotes = false;
  for (const char c : message.substr(0, message.find("last read"))) {
    if (c == '"') {
      in_quotes = !in_quotes;
    } else if (!in_quotes && !std::isdigit(static_cast<unsigned char>(c))) {
      kept += c;
    }
  }
  return kept;
}

struct FuzzRun {
  std::uint64_t seed = 0, inputs = 0, loaded = 0;
  std::set<std::string> reasons;
  std::string fault;  // with what replays it
};

template <class Reader>
FuzzRun fuzz(std::uint64_t seed, std::uint64_t start, double seconds, std::uint64_t max_inputs) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  SafetensorsMutator mutator(valid_files(), seed);
  FuzzRun run;
  run.seed = seed;
  for (; run.inputs < max_inputs && Clock::now() < deadline; ++run.inputs) {
    const std::vector<std::byte> input = mutator.make(start + run.inputs);
    const FuzzOutcome outcome = examine<Reader>(input);
    run.loaded += outcome.loaded;
    if (!outcome.refusal.empty()) run.reasons.insert(reason(outcome.refusal));
    if (outcome.fault.empty()) continue;
    run.fault = fmt::format("{}; ATTEST_FUZZ_SEED={} ATTEST_FUZZ_START={}; the input: {}", outcome.fault,
                            seed, start + run.inputs,
                            printable({reinterpret_cast<const char*>(input.data()), input.size()}, 3000));
    break;
  }
  return run;
}

TEST(SafetensorsFuzz, FindsNothingButOneLineRefusalsAndReadableTensors) {
  const FuzzRun run =
      fuzz<SafetensorsFile>(setting("ATTEST_FUZZ_SEED", 20510), setting("ATTEST_FUZZ_START", 0),
                            static_cast<double>(setting("ATTEST_FUZZ_SECONDS", 10)), ~0ull);
  std::cout << fmt::format("seed {}: {} inputs, {} loaded, {} kinds of refusal\n", run.seed, run.inputs,
                           run.loaded, run.reasons.size());
  EXPECT_EQ(run.fault, "");
  EXPECT_GT(run.inputs, 0u);
}

constexpr std::uint64_t control_inputs = 100'000;

TEST(SafetensorsFuzz, ReachesEveryKindOfRefusalAndStillLoadsManyFiles) {
  const FuzzRun run = fuzz<SafetensorsFile>(1, 0, 600, control_inputs);
  EXPECT_GT(run.loaded, control_inputs / 100);
  for (const char* part : {"header length: the file has",
                           "(not a safetensors file?)",
                           "(truncated file?)",
                           "a zero byte",
                           "ill-formed UTF-",
                           "number overflow",
                           "unexpected end of input",
                           "header byte",
                           "the header is empty",
                           "key  twice",
                           "field  twice",
                           "unknown field",
                           "dtype missing",
                           "shape missing",
                           "data_offsets missing",
                           "expected one of F",
                           "found -",
                           "expected a string",
                           "expected an object of strings",
                           "expected an object with dtype",
                           "expected a name of a dtype",
                           "expected an array of integers",
                           "expected integers from",
                           "expected two integers",
                           "overflows",
                           "is reversed",
                           "exceeds the data",
                           "bytes, expected  for shape",
                           "overlaps",
                           "leaves a hole",
                           "that the tensors cover"}) {
    EXPECT_TRUE(std::ranges::any_of(run.reasons, [&](const auto& text) {
      return text.find(part) != text.npos;
    })) << part;
  }
}

enum class Planted { nothing, end_unchecked, size_wraps, overlap_unseen, missing_field_escapes };

// A plain second reader over a JSON tree. Without a planted bug it passes the same check as the real one.
template <Planted bug>
class TwinReader {
 public:
  TwinReader(std::span<const std::byte> file, const std::string&) try {
    std::uint64_t length = 0;
    require(file.size() >= 8);
    std::memcpy(&length, file.data(), 8);
    require(length <= file.size() - 8);
    data_.assign(file.begin() + 8 + static_cast<std::ptrdiff_t>(length), file.end());
    const char* text = reinterpret_cast<const char*>(file.data()) + 8;
    const auto json = nlohmann::json::parse(text, text + length);
    require(json.is_object());
    for (const auto& [name, entry] : json.items())
      name == "__metadata__" ? read_metadata(entry) : read(name, entry);
    require_cover();
  } catch (const nlohmann::json::exception&) {
    if (bug == Planted::missing_field_escapes) throw;
    refuse();
  }

  const auto& tensors() const { return tensors_; }
  const auto& metadata() const { return metadata_; }
  std::span<const std::byte> data() const { return data_; }
  std::span<const std::byte> load(std::string_view name) const {
    const TensorInfo& info = tensors_.find(name)->second;
    const std::uintptr_t address =
        reinterpret_cast<std::uintptr_t>(data_.data()) + info.begin;  // perhaps outside
    return {reinterpret_cast<const std::byte*>(address), static_cast<std::size_t>(info.end - info.begin)};
  }
  std::vector<double> as_double(std::string_view name) const { return std::vector<double>(elements(name)); }
  std::vector<std::int64_t> as_int64(std::string_view name) const {
    return std::vector<std::int64_t>(elements(name));
  }

 private:
  [[noreturn]] static void refuse() { throw BadInput("f: expected something else"); }
  static void require(bool condition) {
    if (!condition) refuse();
  }
  std::size_t elements(std::string_view name) const {
    return load(name).size() / dtype_size(tensors_.find(name)->second.dtype);
  }

  void read_metadata(const nlohmann::json& entry) { entry.get_to(metadata_); }

  void read(const std::string& name, const nlohmann::json& entry) {
    const auto dtype = dtype_from_name(entry.at("dtype").get<std::string>());
    require(dtype.has_value() && entry.size() == 3 && entry.at("shape").size() <= SafetensorsFile::max_rank);
    TensorInfo info{.name = name, .dtype = *dtype, .shape = {}};
    unsigned __int128 size = dtype_size(*dtype);
    bool fits = true;
    for (const auto& length : entry.at("shape")) {
      require(length.is_number_unsigned() && length.get<std::uint64_t>() >> 63 == 0);
      info.shape.push_back(length.get<std::int64_t>());
      size *= std::max<std::uint64_t>(length.get<std::uint64_t>(), 1);
      fits = fits && size >> 63 == 0;
      if (!fits) size = static_cast<std::uint64_t>(size);
    }
    if (std::ranges::find(info.shape, 0) != info.shape.end()) size = 0;
    require(fits || bug == Planted::size_wraps);
    const auto& offsets = entry.at("data_offsets");
    require(offsets.size() == 2 && offsets.at(0).is_number_unsigned() && offsets.at(1).is_number_unsigned());
    info.begin = offsets.at(0), info.end = offsets.at(1);
    require(info.begin <= info.end && info.end - info.begin == static_cast<std::uint64_t>(size));
    require(info.end <= data_.size() || bug == Planted::end_unchecked);
    tensors_.emplace(name, info);
  }

  void require_cover() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
    for (const auto& entry : tensors_) extents.emplace_back(entry.second.begin, entry.second.end);
    std::ranges::sort(extents);
    std::uint64_t covered = 0;
    for (const auto& [begin, end] : extents) {
      require(begin == covered || bug == Planted::overlap_unseen);
      covered = std::max(covered, end);
    }
    require(covered == data_.size() || (covered > data_.size() && bug == Planted::end_unchecked));
  }

  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::byte> data_;
};

template <Planted bug>
std::string found_in_twin() {
  return fuzz<TwinReader<bug>>(1, 0, 600, control_inputs / 4).fault;
}

TEST(SafetensorsFuzz, FindsEveryPlantedBug) {
  const auto starts = [](const std::string& fault, std::string_view with) {
    EXPECT_TRUE(fault.starts_with(with)) << "found instead: " << fault;
  };
  starts(found_in_twin<Planted::end_unchecked>(), "a tensor reaches outside the data");
  starts(found_in_twin<Planted::size_wraps>(), "a shape is larger than any file");
  starts(found_in_twin<Planted::overlap_unseen>(), "the tensors overlap or leave a hole");
  starts(found_in_twin<Planted::missing_field_escapes>(), "an exception other than BadInput");
  EXPECT_EQ(found_in_twin<Planted::nothing>(), "");
}

TEST(SafetensorsFuzz, MakesTheSameInputAgainFromItsNumber) {
  SafetensorsMutator one(valid_files(), 7), other(valid_files(), 7), different(valid_files(), 8);
  for (std::uint64_t i = 0; i < 50; ++i) (void)one.make(i);
  EXPECT_EQ(one.make(1000), other.make(1000));
  std::size_t same = 0;
  for (std::uint64_t i = 0; i < 50; ++i) same += one.make(i) == different.make(i);
  EXPECT_LT(same, 25u);
}

}  // namespace
}  // namespace attest
