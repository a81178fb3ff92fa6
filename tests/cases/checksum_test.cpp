#include "reference/cases/checksum.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "reference/tensor/bad_input.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

std::string checksum(std::string_view text) { return checksum_of(std::as_bytes(std::span(text))); }

// Test vectors of draft-eastlake-fnv, section 8.
TEST(Checksum, IsFnv1aOf64Bits) {
  EXPECT_EQ(checksum(""), "fnv1a64-cbf29ce484222325");
  EXPECT_EQ(checksum("a"), "fnv1a64-af63dc4c8601ec8c");
  EXPECT_EQ(checksum("foobar"), "fnv1a64-85944171f73967e8");
}

TEST(Checksum, OfAFileIsThatOfItsBytes) {
  const TemporaryFolder folder;
  const std::string text(200'001, 'x');  // several buffers
  std::ofstream(folder / "f", std::ios::binary) << text;
  EXPECT_EQ(file_checksum(folder / "f"), checksum(text));
  EXPECT_NE(file_checksum(folder / "f"), checksum(text + "x"));
  EXPECT_THROW(file_checksum(folder / "none"), BadInput);
  EXPECT_THROW(file_checksum(folder.path()), BadInput);
}

TEST(Checksum, IsRecognised) {
  EXPECT_TRUE(is_checksum("fnv1a64-85944171f73967e8"));
  for (const char* text :
       {"", "fnv1a64-", "fnv1a64-85944171F73967e8", "fnv1a64-85944171f73967e", "sha2564-85944171f73967e8"})
    EXPECT_FALSE(is_checksum(text)) << text;
}

}  // namespace
}  // namespace attest
