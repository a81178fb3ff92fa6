#include "reference/tensor/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/tensor/message_of.hpp"
#include "tests/tensor/safetensors_text.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;
constexpr double infinity = std::numeric_limits<double>::infinity();

// What the reader says about a file; "loaded" if nothing is wrong.
std::string verdict(std::span<const std::byte> file) {
  try {
    SafetensorsFile(file, "x.safetensors");
    return "loaded";
  } catch (const BadInput& error) {
    return error.what();
  }
}

std::string verdict(std::string_view header, std::size_t data_bytes) {
  return verdict(safetensors_text(header, std::string(data_bytes, '\1')));
}

void put(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

SafetensorsWriter sample_writer() {
  SafetensorsWriter writer;
  writer.set_metadata("operator", "hla2");
  writer.set_metadata("note", "two\nlines, \"quotes\", \xce\xbb");
  writer.add("narrow", {3}, std::vector<float>{1.5f, -0.0f, std::numeric_limits<float>::denorm_min()});
  writer.add("wide", {2, 2},
             std::vector<double>{0.1, -infinity, std::nan(""), std::numeric_limits<double>::max()});
  writer.add("count", {2}, std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), 3});
  writer.add("scalar", {}, std::vector<double>{7});
  writer.add("nothing", {0, 4}, std::vector<double>{});
  return writer;
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const TemporaryFolder folder;
  sample_writer().write(folder / "a.safetensors");
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.metadata().at("operator"), "hla2");
  EXPECT_EQ(file.metadata().at("note"), "two\nlines, \"quotes\", \xce\xbb");
  const auto narrow = file.as_double("narrow");
  EXPECT_EQ(narrow, (std::vector<double>{1.5, 0, 0x1p-149}));
  EXPECT_TRUE(std::signbit(narrow[1]));
  const auto wide = file.as_double("wide");
  EXPECT_EQ(wide[0], 0.1);
  EXPECT_EQ(wide[1], -infinity);
  EXPECT_TRUE(std::isnan(wide[2]));
  EXPECT_EQ(wide[3], std::numeric_limits<double>::max());
  EXPECT_EQ(file.as_int64("count"), (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), 3}));
  EXPECT_EQ(file.as_double("scalar"), std::vector<double>{7});
  EXPECT_TRUE(file.as_double("nothing").empty());
  EXPECT_EQ(file.info("wide").shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.info("scalar").count(), 1);
  EXPECT_EQ(file.info("nothing").count(), 0);
  EXPECT_EQ(folder.entries(), 1u) << "a temporary was left behind";
}

TEST(Safetensors, WritesTheSameBytesToMemoryAndToFile) {
  const TemporaryFolder folder;
  sample_writer().write(folder / "a");
  const auto bytes = sample_writer().to_bytes();
  ASSERT_EQ(fs::file_size(folder / "a"), bytes.size());
  std::vector<char> read(bytes.size());
  std::ifstream(folder / "a", std::ios::binary).read(read.data(), static_cast<std::streamsize>(read.size()));
  EXPECT_EQ(std::memcmp(read.data(), bytes.data(), bytes.size()), 0);
}

TEST(Safetensors, AlignsEveryTensorToItsElement) {
  const auto bytes = sample_writer().to_bytes();
  const SafetensorsFile file(bytes, "memory");
  const std::size_t start = bytes.size() - file.data().size();
  for (const auto& [name, info] : file.tensors())
    EXPECT_EQ((start + info.begin) % dtype_size(info.dtype), 0u) << name;
}

TEST(Safetensors, ReadsAFileOfTheReferenceImplementation) {
  const SafetensorsFile file(tensor_test_data("interop.safetensors"));
  EXPECT_EQ(file.tensors().size(), 12u);
  EXPECT_EQ(file.metadata().at("made by"), "safetensors 0.5.3");
  EXPECT_EQ(file.as_double("f64"), (std::vector<double>{0.1, -1e300}));
  EXPECT_EQ(file.as_double("f32"), (std::vector<double>{1.5, -0x1p-149, 0x1.fffffep127}));
  EXPECT_EQ(file.as_double("f16"), (std::vector<double>{1, 0x1p-24, -65504, -infinity}));
  EXPECT_EQ(file.as_double("bf16"), (std::vector<double>{0x1.02p0, 0x1p-133, -0x1.fep127, infinity}));
  const auto e4m3 = file.as_double("e4m3");
  EXPECT_EQ(std::vector<double>(e4m3.begin(), e4m3.begin() + 3), (std::vector<double>{1, 0x1p-9, -448}));
  EXPECT_TRUE(std::isnan(e4m3[3]));
  EXPECT_EQ(file.as_double("e5m2"), (std::vector<double>{1, 0x1p-16, -57344, infinity}));
  EXPECT_EQ(file.as_int64("i64"), (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(),
                                                             std::numeric_limits<std::int64_t>::max()}));
  EXPECT_EQ(file.as_int64("i32"), (std::vector<std::int64_t>{-2147483648, 7}));
  EXPECT_EQ(file.as_int64("u8"), (std::vector<std::int64_t>{0, 128, 255}));
  EXPECT_EQ(file.as_int64("flag"), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(file.as_double("scalar"), std::vector<double>{0.25});
  EXPECT_EQ(file.info("empty \xce\xbb").shape, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(file.info("bf16").shape, (std::vector<std::int64_t>{2, 2}));
}

// bf16 is the upper half of fp32, and fp8 e5m2 the upper half of fp16: two decoders that check each other.
TEST(Safetensors, DecodesEveryHalfAndByteAsItsWiderTwinDoes) {
  std::vector<std::uint16_t> halves(65536), e5m2_as_half(256);
  std::vector<std::uint8_t> octets(256);
  std::vector<float> singles(65536);
  std::iota(halves.begin(), halves.end(), 0);
  std::iota(octets.begin(), octets.end(), 0);
  for (std::uint32_t i = 0; i < 65536; ++i) singles[i] = std::bit_cast<float>(i << 16);
  for (std::uint32_t i = 0; i < 256; ++i) e5m2_as_half[i] = static_cast<std::uint16_t>(i << 8);
  SafetensorsWriter writer;
  writer.add("bf16", Dtype::bf16, {65536}, std::as_bytes(std::span(halves)));
  writer.add("f32", {65536}, singles);
  writer.add("f8", Dtype::f8_e5m2, {256}, std::as_bytes(std::span(octets)));
  writer.add("f16", Dtype::f16, {256}, std::as_bytes(std::span(e5m2_as_half)));
  const SafetensorsFile file(writer.to_bytes(), "memory");
  const auto compare = [&](std::string_view narrow, std::string_view wide) {
    const auto a = file.as_double(narrow), b = file.as_double(wide);
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(a[i]), std::bit_cast<std::uint64_t>(b[i])) << narrow << " " << i;
    }
  };
  compare("bf16", "f32");
  compare("f8", "f16");
}

TEST(Safetensors, AcceptsLegalRarities) {
  const std::pair<const char*, std::size_t> files[] = {
      {"{}", 0},
      {"{}      ", 0},
      {R"({"__metadata__":{}})", 0},
      {R"({"a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})", 4},
      {R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       3},
      {R"({"a":{"dtype":"F32","shape":[0,9223372036854775],"data_offsets":[0,0]}})", 0},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1}};
  for (const auto& [header, data_bytes] : files) EXPECT_EQ(verdict(header, data_bytes), "loaded") << header;
}

struct BadFile {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  const char* message;  // after "x.safetensors: "
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

std::string entry(std::string_view fields) { return "{\"w\":{" + std::string(fields) + "}}"; }

std::string many(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

const std::string dtypes =
    "F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL";
const std::string dtype_message = R"(tensor "w": dtype: found "f32", expected one of )" + dtypes;

const std::vector<BadFile> bad_files{
    {"empty header", "", 0,
     "header byte 1: the header is empty, expected a JSON object that starts with '{'"},
    {"array", "[]", 0, "header byte 1: found \"[\", expected a JSON object that starts with '{'"},
    {"space first", " {}", 0, "header byte 1: found \" \", expected a JSON object that starts with '{'"},
    {"byte order mark", "\xef\xbb\xbf{}", 0,
     "header byte 1: found \"\\xef\", expected a JSON object that starts with '{'"},
    {"cut JSON", R"({"w":)", 0,
     "header byte 6: not valid JSON (syntax error while parsing value - unexpected end of input; expected "
     "'[', '{', or "
     "a literal), expected a JSON object"},
    {"no JSON", "{nonsense}", 0,
     "header byte 3: not valid JSON (syntax error while parsing object key - invalid literal; last read: "
     "'{no'; expected "
     "string literal), expected a JSON object"},
    {"text after the object", "{} {}", 0,
     "header byte 4: not valid JSON (syntax error while parsing value - unexpected '{'; expected end of "
     "input), expected a "
     "JSON object"},
    {"zero byte", std::string("{}\0junk", 7), 0,
     "header byte 3: not valid JSON (a zero byte), expected a JSON object"},
    {"invalid UTF-8", "{\"\xff\":{}}", 0,
     "header byte 3: not valid JSON (syntax error while parsing object key - invalid string: ill-formed "
     "UTF-8 byte; last "
     "read: '\"\\xff'; expected string literal), expected a JSON object"},
    {"overlong UTF-8", "{\"\xc0\xaf\":{}}", 0,
     "header byte 3: not valid JSON (syntax error while parsing object key - invalid string: ill-formed "
     "UTF-8 byte; last "
     "read: '\"\\xc0'; expected string literal), expected a JSON object"},
    {"number out of range", entry(R"("dtype":"F32","shape":[1e999],"data_offsets":[0,4])"), 4,
     "header byte 34: not valid JSON (number overflow parsing '1e999'), expected a JSON object"},
    {"entry is no object", R"({"w":3})", 0,
     R"(tensor "w": found 3, expected an object with dtype, shape and data_offsets)"},
    {"entry is null", R"({"w":null})", 0,
     R"(tensor "w": found null, expected an object with dtype, shape and data_offsets)"},
    {"entry is an array", R"({"w":[]})", 0,
     R"(tensor "w": found an array, expected an object with dtype, shape and data_offsets)"},
    {"tensor twice", R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0077":{}})", 0,
     R"(header: key "w" twice, expected each key once)"},
    {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0,
     R"(header: key "__metadata__" twice, expected each key once)"},
    {"metadata key twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0,
     R"(__metadata__: key "a" twice, expected each key once)"},
    {"field twice", entry(R"("dtype":"F32","dtype":"F32")"), 0,
     R"(tensor "w": field "dtype" twice, expected each field once)"},
    {"metadata is no object", R"({"__metadata__":"x"})", 0,
     R"(__metadata__: found the string "x", expected an object of strings)"},
    {"metadata holds a number", R"({"__metadata__":{"a":1}})", 0,
     R"(__metadata__: "a": found 1, expected a string)"},
    {"metadata holds an object", R"({"__metadata__":{"a":{}}})", 0,
     R"(__metadata__: "a": found an object, expected a string)"},
    {"unknown field", entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1])"), 4,
     R"(tensor "w": unknown field "strides", expected dtype, shape and data_offsets alone)"},
    {"dtype missing", entry(R"("shape":[1],"data_offsets":[0,4])"), 4,
     R"(tensor "w": dtype missing, expected dtype, shape and data_offsets)"},
    {"shape missing", entry(R"("dtype":"F32","data_offsets":[0,4])"), 4,
     R"(tensor "w": shape missing, expected dtype, shape and data_offsets)"},
    {"offsets missing", entry(R"("dtype":"F32","shape":[1])"), 4,
     R"(tensor "w": data_offsets missing, expected dtype, shape and data_offsets)"},
    {"unknown dtype", entry(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), 4, dtype_message.c_str()},
    {"dtype is a number", entry(R"("dtype":32)"), 0,
     R"(tensor "w": dtype: found 32, expected a name of a dtype)"},
    {"dtype is an array", entry(R"("dtype":["F32"])"), 0,
     R"(tensor "w": dtype: found an array, expected a name of a dtype)"},
    {"shape is a number", entry(R"("shape":4)"), 0,
     R"(tensor "w": shape: found 4, expected an array of integers from 0 to 2^63 - 1)"},
    {"negative dimension", entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found -1, expected integers from 0 to 2^63 - 1)"},
    {"fractional dimension", entry(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found 1.5, expected integers from 0 to 2^63 - 1)"},
    {"dimension with exponent", entry(R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found 1e0, expected integers from 0 to 2^63 - 1)"},
    {"dimension of 2^63", entry(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found 9223372036854775808, expected integers from 0 to 2^63 - 1)"},
    {"dimension beyond 64 bits",
     entry(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found 99999999999999999999, expected integers from 0 to 2^63 - 1)"},
    {"string as dimension", entry(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found the string "1", expected integers from 0 to 2^63 - 1)"},
    {"boolean as dimension", entry(R"("dtype":"F32","shape":[true],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found true, expected integers from 0 to 2^63 - 1)"},
    {"nested shape", entry(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: found an array, expected integers from 0 to 2^63 - 1)"},
    {"too many dimensions",
     entry("\"dtype\":\"F32\",\"shape\":[" + many("1,", 64) + "1],\"data_offsets\":[0,4]"), 4,
     R"(tensor "w": shape: more than 64 dimensions, expected at most 64)"},
    {"product overflows", entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"), 4,
     R"(tensor "w": shape: [4294967296, 4294967296] of F32 overflows, expected less than 2^63 bytes)"},
    {"product wraps to the size",
     entry(R"("dtype":"U8","shape":[3,6148914691236517206],"data_offsets":[0,2])"), 2,
     R"(tensor "w": shape: [3, 6148914691236517206] of U8 overflows, expected less than 2^63 bytes)"},
    {"bytes overflow", entry(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0,
     R"(tensor "w": shape: [2305843009213693952] of F64 overflows, expected less than 2^63 bytes)"},
    {"strides overflow beside a zero",
     entry(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), 0,
     R"(tensor "w": shape: [0, 4294967296, 4294967296] of U8 overflows, expected less than 2^63 bytes)"},
    {"offsets are a number", entry(R"("data_offsets":4)"), 0,
     R"(tensor "w": data_offsets: found 4, expected an array of two integers from 0 to 2^64 - 1)"},
    {"one offset", entry(R"("data_offsets":[0])"), 0,
     R"(tensor "w": data_offsets: found fewer, expected two integers from 0 to 2^64 - 1)"},
    {"three offsets", entry(R"("data_offsets":[0,4,8])"), 0,
     R"(tensor "w": data_offsets: found 8, expected two integers from 0 to 2^64 - 1)"},
    {"negative offset", entry(R"("data_offsets":[-4,0])"), 0,
     R"(tensor "w": data_offsets: found -4, expected two integers from 0 to 2^64 - 1)"},
    {"fractional offset", entry(R"("data_offsets":[0.0,4])"), 0,
     R"(tensor "w": data_offsets: found 0.0, expected two integers from 0 to 2^64 - 1)"},
    {"reversed offsets", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4,
     R"(tensor "w": data_offsets: [4, 0] is reversed, expected [begin, end] with begin <= end)"},
    {"offsets beyond the data", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4,
     R"(tensor "w": data_offsets: [0, 8] exceeds the data, expected an end within the 4 bytes behind the header (truncated file?))"},
    {"offset of 2^64 - 1",
     entry(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615])"), 4,
     R"(tensor "w": data_offsets: [18446744073709551611, 18446744073709551615] exceeds the data, expected an end within the 4 bytes behind the header (truncated file?))"},
    {"size does not fit the shape", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
     R"(tensor "w": data_offsets: [0, 4] is 4 bytes, expected 8 for shape [2] of F32)"},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3,
     R"(tensor "b": data_offsets: [1, 3] overlaps, expected to begin at 2, where the tensor before it ends)"},
    {"same bytes twice",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
     2,
     R"(tensor "b": data_offsets: [0, 2] overlaps, expected to begin at 2, where the tensor before it ends)"},
    {"hole",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3,
     R"(tensor "b": data_offsets: [2, 3] leaves a hole, expected to begin at 1, where the tensor before it ends)"},
    {"hole in front", entry(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
     R"(tensor "w": data_offsets: [1, 2] leaves a hole, expected to begin at 0, where the tensor before it ends)"},
    {"data beyond the tensors", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 2,
     "data: 2 bytes behind the header, expected the 1 that the tensors cover"},
    {"data without tensors", "{}", 1,
     "data: 1 bytes behind the header, expected the 0 that the tensors cover"},
    {"control characters in a name", R"({"a\u001b[31m\nb\u2028\u202e":3})", 0,
     R"(tensor "a\x1b[31m\x0ab\xe2\x80\xa8\xe2\x80\xae": found 3, expected an object with dtype, shape and data_offsets)"},
};

class BadFiles : public testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreRefusedInOneLineThatSaysWhatWhereAndWhatWasExpected) {
  EXPECT_EQ(verdict(GetParam().header, GetParam().data_bytes),
            std::string("x.safetensors: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, BadFiles, testing::ValuesIn(bad_files), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Safetensors, RefusesABadHeaderLength) {
  const auto bytes = [](std::uint64_t length, std::size_t rest) {
    std::vector<std::byte> file(8 + rest, std::byte{' '});
    std::memcpy(file.data(), &length, 8);
    return file;
  };
  EXPECT_EQ(verdict({}), "x.safetensors: header length: the file has 0 bytes, expected at least 8");
  EXPECT_EQ(verdict(std::vector(7, std::byte{0})),
            "x.safetensors: header length: the file has 7 bytes, expected at least 8");
  EXPECT_EQ(verdict(bytes(3, 2)),
            "x.safetensors: header length: 3 bytes, expected at most the 2 that follow it (truncated file?)");
  EXPECT_EQ(
      verdict(bytes(100'000'001, 2)),
      "x.safetensors: header length: 100000001 bytes, expected at most 100000000 (not a safetensors file?)");
  EXPECT_EQ(verdict(bytes(~std::uint64_t{0}, 2)),
            "x.safetensors: header length: 18446744073709551615 bytes, expected at most 100000000 (not a "
            "safetensors file?)");
}

TEST(Safetensors, RefusesAHeaderBeyondTheLimitEvenIfTheFileHasIt) {
  std::vector<std::byte> file(8 + SafetensorsFile::max_header_bytes + 1, std::byte{' '});
  const std::uint64_t length = SafetensorsFile::max_header_bytes + 1;
  std::memcpy(file.data(), &length, 8);
  file[8] = std::byte{'{'}, file[9] = std::byte{'}'};
  EXPECT_TRUE(verdict(file).starts_with("x.safetensors: header length: 100000001 bytes")) << verdict(file);
  const std::uint64_t legal = length - 1;  // control: at the limit it loads
  std::memcpy(file.data(), &legal, 8);
  file.pop_back();
  EXPECT_EQ(verdict(file), "loaded");
}

TEST(Safetensors, SurvivesNestingOfAnyDepth) {
  const std::size_t depth = 10'000'000;
  EXPECT_EQ(verdict(many("{\"a\":", depth), 0),
            "x.safetensors: tensor \"a\": unknown field \"a\", expected dtype, shape and data_offsets alone");
  EXPECT_EQ(
      verdict("{\"a\":" + std::string(depth, '['), 0),
      "x.safetensors: tensor \"a\": found an array, expected an object with dtype, shape and data_offsets");
  EXPECT_EQ(verdict("{\"a\":{\"shape\":" + std::string(depth, '['), 0),
            "x.safetensors: tensor \"a\": shape: found an array, expected integers from 0 to 2^63 - 1");
}

TEST(Safetensors, SurvivesHugeCounts) {
  EXPECT_EQ(verdict("{\"a\":{\"shape\":[" + many("1,", 10'000'000), 0),
            "x.safetensors: tensor \"a\": shape: more than 64 dimensions, expected at most 64");
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += "\"t" + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
  header.back() = '}';
  EXPECT_EQ(verdict(header, 0), "loaded");
}

TEST(Safetensors, KeepsMessagesShortAndOnOneLineWhateverTheFileHolds) {
  const std::string name(5'000'000, 'n'), lines = many("\\n\\u0007", 1000);
  for (const std::string& header :
       {"{\"" + name + "\":3}", "{\"" + lines + "\":3}", "{\"a\":{\"dtype\":\"" + name + "\"}}",
        "{\"a\":{\"" + lines + "\":1}}", "{\"__metadata__\":{\"" + name + "\":1}}", "{\"" + name,
        "{\"a\":{\"shape\":[" + std::string(100'000, '9') + "." + std::string(10, '9')}) {
    const std::string message = verdict(header, 0);
    EXPECT_LT(message.size(), 800u);
    EXPECT_NE(message.find("expected"), message.npos) << message;
    for (const char c : message) ASSERT_TRUE(c >= 0x20 && c < 0x7f) << message;
  }
}

TEST(Safetensors, RefusesEveryTruncationOfAFile) {
  const auto file = sample_writer().to_bytes();
  for (std::size_t size = 0; size < file.size(); ++size) {
    ASSERT_NE(verdict(std::span(file).first(size)), "loaded") << size;
  }
  EXPECT_EQ(verdict(file), "loaded");
}

TEST(Safetensors, SaysWhatIsWrongWithARequest) {
  std::vector<std::byte> flags{std::byte{1}, std::byte{2}}, wide(8, std::byte{0xff});
  SafetensorsWriter writer;
  writer.add("x", {1}, std::vector<float>{1});
  writer.add("n", {1}, std::vector<std::int64_t>{1});
  writer.add("flag", Dtype::boolean, {2}, flags);
  writer.add("u", Dtype::u64, {1}, wide);
  const SafetensorsFile file(writer.to_bytes(), "x.safetensors");
  const std::pair<std::function<void()>, const char*> requests[] = {
      {[&] { file.load("q"); },
       R"(tensor "q": missing, expected a tensor of that name (the file has "flag", "n", "u", "x"))"},
      {[&] { file.as_int64("x"); }, R"(tensor "x": dtype: F32, expected an integer dtype or BOOL)"},
      {[&] { file.as_double("n"); },
       R"(tensor "n": dtype: I64, expected F64, F32, F16, BF16, F8_E4M3 or F8_E5M2)"},
      {[&] { file.as_int64("flag"); }, R"(tensor "flag": the value 2, expected 0 or 1 in BOOL)"},
      {[&] { file.as_int64("u"); },
       R"(tensor "u": the value 18446744073709551615, expected at most 2^63 - 1)"}};
  for (const auto& [request, message] : requests)
    EXPECT_EQ(message_of(request), std::string("x.safetensors: ") + message);
}

TEST(Safetensors, SaysWhyAPathCannotBeRead) {
  const TemporaryFolder folder;
  const auto said = [&](const fs::path& path) {
    const std::string message = message_of([&] { SafetensorsFile file(path); });
    EXPECT_TRUE(message.starts_with(path.string() + ": ")) << message;
    return message.substr(path.string().size() + 2);
  };
  EXPECT_EQ(said(folder / "none"),
            "cannot be opened: No such file or directory, expected a safetensors file");
  EXPECT_EQ(said(folder.path()), "cannot be read: Is a directory, expected a safetensors file");
  EXPECT_EQ(said("/dev/zero"), "not a regular file, expected a safetensors file");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(said(folder / "pipe"), "not a regular file, expected a safetensors file");
  put(folder / "short", std::vector(3, std::byte{1}));
  EXPECT_EQ(said(folder / "short"), "header length: the file has 3 bytes, expected at least 8");
  std::ofstream(folder / "text") << "this is no safetensors file at all";
  EXPECT_TRUE(said(folder / "text").ends_with("expected at most 100000000 (not a safetensors file?)"));
}

TEST(Safetensors, ReadsTheSameFromAPathAndFromMemory) {
  const TemporaryFolder folder;
  for (const BadFile& bad : bad_files) {
    const auto bytes = safetensors_text(bad.header, std::string(bad.data_bytes, '\1'));
    put(folder / "f", bytes);
    const std::string message = message_of([&] { SafetensorsFile file(folder / "f"); });
    EXPECT_EQ(message, (folder / "f").string() + ": " + bad.message) << bad.name;
  }
}

TEST(Safetensors, DoesNotAllocateWhatAHeaderMerelyClaims) {
  const TemporaryFolder
      folder;  // a file of 1 TB that takes no disk space and whose header does not fit its size
  put(folder / "sparse", safetensors_text(entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), ""));
  fs::resize_file(folder / "sparse", std::uintmax_t{1} << 40);
  const std::string message = message_of([&] { SafetensorsFile file(folder / "sparse"); });
  EXPECT_TRUE(message.ends_with("expected the 1 that the tensors cover")) << message;
}

TEST(SafetensorsWriter, RefusesMisuse) {
  SafetensorsWriter writer;
  const std::vector<double> two{1, 2};
  writer.add("a", {2}, two);
  EXPECT_THROW(writer.add("a", {2}, two), std::invalid_argument);
  EXPECT_THROW(writer.add("b", {3}, two), std::invalid_argument);
  EXPECT_THROW(writer.add("b", {-2}, two), std::invalid_argument);
  EXPECT_THROW(writer.add("__metadata__", {2}, two), std::invalid_argument);
  EXPECT_THROW(writer.add("\xff", {2}, two), std::invalid_argument);
  EXPECT_THROW(writer.add("b", std::vector<std::int64_t>(65, 1), std::vector<double>{1}),
               std::invalid_argument);
  EXPECT_EQ(message_of([&] { writer.set_metadata("file", "\xff"); }),
            R"(metadata "file": "\xff", expected valid UTF-8)");
  EXPECT_EQ(SafetensorsFile(writer.to_bytes(), "memory").tensors().size(), 1u);
}

}  // namespace
}  // namespace attest
