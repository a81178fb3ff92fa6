#include "reference/tensor/bad_input.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

TEST(BadInput, KeepsPrintableTextAsItIs) {
  for (const char* text : {"", "plain", "na\xc3\xafve \xce\xbb \xe2\x88\x91 \xf0\x9f\x98\x80", "\\x07"}) {
    EXPECT_EQ(printable(text, 100), text);
  }
}

TEST(BadInput, EscapesControlsSeparatorsAndMalformedBytes) {
  EXPECT_EQ(printable("a\nb\tc\x1b\x7f", 100), "a\\x0ab\\x09c\\x1b\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1), 100), "\\x00");
  EXPECT_EQ(printable("\xc2\x85 \xe2\x80\xa9 \xe2\x80\xae", 100),
            "\\xc2\\x85 \\xe2\\x80\\xa9 \\xe2\\x80\\xae");
  EXPECT_EQ(printable("\xff \xc3 \xe2\x88", 100), "\\xff \\xc3 \\xe2\\x88");
}

TEST(BadInput, TellsUtf8FromWhatOnlyLooksLikeIt) {
  for (const char* good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(good)) << printable(good, 10);
  }
  for (const char* bad :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xc2 ", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << printable(bad, 10);
  }
}

TEST(BadInput, ShortensFromTheMiddle) {
  EXPECT_EQ(printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(printable("abcdefghi", 8), "abcd...fghi");
  EXPECT_EQ(printable("abcdefghi", 1), "...");
  EXPECT_EQ(in_quotes(std::string(1000, 'n')),
            '"' + std::string(40, 'n') + "..." + std::string(40, 'n') + '"');
}

TEST(BadInput, IsOneBoundedLineWhateverItIsGiven) {
  EXPECT_STREQ(BadInput("two\nlines").what(), "two\\x0alines");
  EXPECT_LT(std::string(BadInput(std::string(1'000'000, 'x')).what()).size(), 2100u);
}

}  // namespace
}  // namespace attest
