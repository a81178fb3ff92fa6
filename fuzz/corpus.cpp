#include "fuzz/corpus.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <sstream>

#include "reference/cases/checksum.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/forms/operator.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

constexpr std::size_t largest_file = 64 << 20;
constexpr Index largest_before = 1 << 20;
constexpr double largest_tensors = 1 << 28;  // the truth takes many times as much

// Lines without remarks and leading blanks, as they are printed, and where the reader is.
class Lines {
 public:
  Lines(std::string_view text, std::string where) : text_(text), where_(std::move(where)) { next(); }

  bool at_end() const { return done_; }
  std::string_view line() const { return line_; }
  void next() {
    do {
      done_ = text_.empty();
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      line_ = text_.substr(0, end);
      line_.remove_prefix(std::min(line_.find_first_not_of(" \t"), line_.size()));
      complete_ = end < text_.size();
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_;
    } while (!done_ && (line_.empty() || line_.starts_with('#')));
  }
  [[noreturn]] void refuse(const std::string& expected) const {
    const std::string found = done_ ? "the end of the file" : in_quotes(line_);
    throw BadInput(fmt::format("{}: line {}: {}: expected {}", where_, number_, found, expected));
  }
  // The rest of a line that begins with the word; none: another line.
  std::optional<std::string_view> take(std::string_view word) {
    if (done_ || !line_.starts_with(word) || line_.size() <= word.size() || line_[word.size()] != ' ')
      return std::nullopt;
    const std::string_view rest = line_.substr(word.size() + 1);
    next();
    return rest;
  }
  std::string_view need(std::string_view word, const std::string& expected) {
    if (done_ || !line_.starts_with(word)) refuse(expected);
    const auto rest = take(word);
    if (!rest) refuse(expected);
    return *rest;
  }

 private:
  std::string_view text_, line_;
  std::string where_;
  int number_ = 0;
  bool done_ = false, complete_ = false;
};

template <class Integer>
std::optional<Integer> integer(std::string_view text, Integer least, Integer most) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return std::nullopt;
  return value;
}

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// "before.q[0,3,1,2] 0x1p+4"
std::optional<ValueEdit> parse_edit(std::string_view line) {
  const std::size_t open = line.find('['), close = line.find("] ");
  if (open == line.npos || close == line.npos || open > close || open == 0) return std::nullopt;
  ValueEdit edit{std::string(line.substr(0, open)), {}, 0};
  std::string_view own = edit.field;
  if (own.starts_with("before.")) own.remove_prefix(7);
  constexpr std::string_view fields[] = {"q", "k", "v", "g", "beta", "level_scales", "decay", "do"},
                             final = "dfinal_state.";
  const bool moment = own.starts_with(final) && own.size() > final.size() && own.size() < final.size() + 40 &&
                      std::all_of(own.begin() + final.size(), own.end(), is_letter);
  if (!moment && std::find(std::begin(fields), std::end(fields), own) == std::end(fields))
    return std::nullopt;
  for (std::string_view rest = line.substr(open + 1, close - open - 1);;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const auto index = integer<Index>(rest.substr(0, comma), 0, 1 << 30);
    if (!index) return std::nullopt;
    edit.index.push_back(*index);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  const auto value = from_hex_float(line.substr(close + 2));
  if (!value) return std::nullopt;
  edit.value = *value;
  return edit;
}

void parse_edits(Lines& lines, FuzzInput& input) {
  while (!lines.at_end() && !lines.line().starts_with("end")) {
    const auto edit = parse_edit(lines.line());
    if (!edit) lines.refuse("a value such as q[0,3,1,2] 0x1p+4, or end N");
    input.edits.push_back(*edit);
    lines.next();
  }
}

std::string names_of_questions() {
  std::string text = "check and one of";
  for (const Question question : all_questions) text += ' ' + std::string(question_name(question));
  return text;
}

void parse_powers(Lines& lines, FuzzInput& input) {
  while (lines.line().starts_with("power ")) {
    const std::string_view rest = lines.line().substr(6);
    const auto power = integer<int>(rest.substr(std::min<std::size_t>(2, rest.size())), -1000, 1000);
    const bool field =
        rest.size() > 2 && rest[1] == ' ' && std::string_view("qkv").find(rest[0]) != std::string_view::npos;
    if (!field || !power) lines.refuse("power, q, k or v, and an exponent of 2");
    input.powers[std::string(1, rest[0])] = *power;
    lines.next();
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw BadInput(printable(path.native(), 200) + ": cannot be read (" + error.message() + ")");
  if (size > largest_file) throw BadInput(printable(path.native(), 200) + ": larger than a case can be");
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw BadInput(printable(path.native(), 200) + ": cannot be read");
  return text.str();
}

std::string read_standard_input() {
  std::string text(largest_file + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::cin.gcount()));
  if (text.size() > largest_file) throw BadInput("standard input: larger than a case can be");
  return text;
}

}  // namespace

std::string to_text(const CorpusCase& one) {
  const FuzzInput& input = one.input;
  std::string text = std::string(corpus_schema) + '\n';
  if (!one.remark.empty()) text += "# " + printable(one.remark, 2000) + '\n';
  text += fmt::format("check {}\n", question_name(input.question));
  if (!one.kernel.empty()) text += "kernel " + printable(one.kernel, 200) + '\n';
  text += "case " + to_text(input.shape) + '\n';
  if (input.before > 0) text += fmt::format("before {}\n", input.before);
  for (const auto& [field, power] : input.powers) text += fmt::format("power {} {}\n", field, power);
  if (input.linear_gates) text += "gates linear\n";
  text += input.zeros ? "values zeros\n" : "values drawn\n";
  for (const ValueEdit& edit : input.edits)
    text += fmt::format("{}[{}] {}\n", edit.field, fmt::join(edit.index, ","), to_hex_float(edit.value));
  return text + fmt::format("end {}\n", input.edits.size());
}

CorpusCase parse_corpus_case(std::string_view text, const std::string& where) {
  Lines lines(text, printable(where, 200));
  if (lines.at_end() || lines.line() != corpus_schema) lines.refuse(std::string(corpus_schema));
  lines.next();
  CorpusCase one;
  FuzzInput& input = one.input;
  const auto question = question_named(lines.line().starts_with("check ") ? lines.line().substr(6) : "");
  if (!question) lines.refuse(names_of_questions());
  input.question = *question, lines.next();
  if (const auto kernel = lines.take("kernel")) one.kernel = *kernel;
  try {
    input.shape = parse_case(lines.line().starts_with("case ") ? lines.line().substr(5) : "");
  } catch (const BadInput& error) {
    lines.refuse(std::string("case and a case line (") + error.what() + ')');
  }
  if (!input.shape.drawn()) lines.refuse("a case that is drawn, no input=");
  lines.next();
  if (lines.line().starts_with("before ")) {
    const auto before = integer<Index>(lines.line().substr(7), 1, largest_before);
    if (!before) lines.refuse("before and a number of tokens");
    input.before = *before, lines.next();
  }
  parse_powers(lines, input);
  if (lines.line() == "gates linear") input.linear_gates = true, lines.next();
  if (lines.line() != "values zeros" && lines.line() != "values drawn")
    lines.refuse("values zeros or values drawn");
  input.zeros = lines.line() == "values zeros", lines.next();
  parse_edits(lines, input);
  if (lines.at_end() || lines.line() != fmt::format("end {}", input.edits.size()))
    lines.refuse(fmt::format("end {}, after as many values", input.edits.size()));
  lines.next();
  if (!lines.at_end()) lines.refuse("nothing after the end");
  return one;
}

CorpusCase read_corpus_case(const std::filesystem::path& file) {
  const bool named = file != "-";
  CorpusCase one = parse_corpus_case(named ? read_file(file) : read_standard_input(),
                                     named ? file.string() : "standard input");
  one.file = named ? file.string() : "standard input";
  const std::string where = printable(one.file, 200);
  try {
    const Declaration& declaration =
        operator_named(one.input.shape.op, one.input.shape.variant).declaration();
    if (const double bytes = bytes_of(one.input, declaration); bytes > largest_tensors)
      throw BadInput(fmt::format("its tensors take {:.1f} GiB, expected {:.2f} GiB at most",
                                 bytes / (1 << 30), largest_tensors / (1 << 30)));
  } catch (const BadInput& refused) {
    throw BadInput(where + ": " + refused.what());
  }
  return one;
}

Corpus read_corpus(const std::filesystem::path& folder) {
  Corpus corpus;
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".case") files.push_back(at->path());
  if (error)
    throw BadInput("--corpus " + in_quotes(folder.native()) + ": cannot be read (" + error.message() + ")");
  std::sort(files.begin(), files.end());
  for (const auto& file : files) try {
      corpus.cases.push_back(read_corpus_case(file));
    } catch (const BadInput& refused) {
      corpus.skipped.push_back(refused.what());
    }
  return corpus;
}

void require_writable(const std::filesystem::path& folder, const std::string& option) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder))
    throw BadInput(option + ' ' + in_quotes(folder.native()) + ": cannot be made (" +
                   (error ? error.message() : "not a folder") + "), expected a folder to write to");
  AtomicFile probe(folder / "writable.probe");  // gone again at the end of this line's scope
}

std::filesystem::path add_to_corpus(const std::filesystem::path& folder, const CorpusCase& one) {
  CorpusCase bare = one;  // the same input found twice is one case, whoever finds it
  bare.kernel.clear(), bare.remark.clear();
  const std::string text = to_text(bare), sum = checksum_of(std::as_bytes(std::span(text)));
  const auto path = folder / fmt::format("{}.{}.{}.case", one.input.shape.op,
                                         question_name(one.input.question), sum.substr(sum.size() - 8));
  if (std::filesystem::exists(path)) return {};
  write_file_atomically(path, to_text(one));
  return path;
}

}  // namespace attest
