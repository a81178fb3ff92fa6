// Text from outside inside HTML and Markdown.
#pragma once

#include <string>
#include <string_view>

namespace attest {

// Valid UTF-8 without control characters; what is not is replaced by U+FFFD, a line break or tab by a space.
std::string clean_text(std::string_view text);
std::string html_text(std::string_view text);      // for element content and quoted attributes
std::string markdown_text(std::string_view text);  // for a table cell
std::string markdown_code(std::string_view text);  // as inline code in a table cell
std::string shell_word(std::string_view text);     // as one word of a POSIX shell, quoted where it must be

}  // namespace attest
