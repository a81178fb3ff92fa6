// The small pieces of the HTML page that several of its sections are made of.
#pragma once

#include <string>

#include "reports/record.hpp"

namespace attest {

const char* mark(Verdict verdict);   // one symbol
std::string badge(Verdict verdict);  // symbol and word, coloured
std::string code(const std::string& text);
std::string name_code(const std::string& name);  // may break after its dots and underscores, nowhere else
std::string replay_line(const std::string& line);

// "0.1094 (0x1.c0224ap-4)": the number for people and the bits that it stands for.
std::string number_with_bits(double value);
std::string decimal(double value);  // six significant digits

// "batch 0, token 703, head 1, column 40" where the index is that of an output [b,t,h,c]; else "".
std::string index_words(const WorstElement& element);
// A whole page around the content of <main>: style (and more of it), copy buttons, nothing from outside.
std::string html_page(const std::string& title, const std::string& content, const std::string& style = "");

std::string where_words(const Locate& where);  // "tokens 64..1023 · heads all", escaped

}  // namespace attest
