#include "cli/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>

#include "reference/tensor/bad_input.hpp"
#include "reports/escape.hpp"

namespace attest {
namespace {

template <class Integer>
Integer whole_number(const std::string& name, const std::string& text, Integer least, Integer most) {
  Integer value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < least || value > most)
    throw BadInput(
        fmt::format("{} {}: expected a whole number of {} .. {}", name, in_quotes(text), least, most));
  return value;
}

std::string program_text = "attest", command_text = "attest";
std::vector<std::string> argument_list;

}  // namespace

CLI::Option* add_whole_number(CLI::App* command, const std::string& name, Index& value, Index least,
                              Index most, const std::string& description) {
  return command
      ->add_option_function<std::string>(
          name,
          [=, &value](const std::string& text) { value = whole_number<Index>(name, text, least, most); },
          description)
      ->type_name("N")
      ->default_str(std::to_string(value));
}

CLI::Option* add_threads(CLI::App* command, int& threads, const std::string& of_what) {
  return command
      ->add_option_function<std::string>(
          "--threads",
          [&threads](const std::string& text) { threads = whole_number<int>("--threads", text, 0, 1024); },
          of_what + ", 0: as many as the machine has")
      ->type_name("N")
      ->default_str(std::to_string(threads));
}

CLI::Option* add_seed(CLI::App* command, std::optional<std::uint64_t>& seed, const std::string& description) {
  return command
      ->add_option_function<std::string>(
          "--seed",
          [&seed](const std::string& text) {
            seed = whole_number<std::uint64_t>("--seed", text, 0, UINT64_MAX);
          },
          description)
      ->type_name("N");
}

CLI::Option* add_path(CLI::App* command, const std::string& name, std::string& path,
                      const std::string& description) {
  return command
      ->add_option_function<std::string>(
          name,
          [=, &path](const std::string& text) {
            if (text.empty()) throw BadInput(name + " \"\": expected a path");
            path = text;
          },
          description)
      ->type_name("PATH");
}

CLI::Option* add_shard(CLI::App* command, std::optional<Shard>& shard, const std::string& of_what) {
  return command
      ->add_option_function<std::string>(
          "--shard", [&shard](const std::string& text) { shard = parse_shard(text); },
          "part I of N of " + of_what + ", the same ones every time; attest merge joins the parts")
      ->type_name("I/N");
}

void require_seed(const std::optional<Shard>& shard, const std::optional<std::uint64_t>& seed) {
  if (shard && !seed)
    throw BadInput("--shard " + to_text(*shard) + ": expected --seed N beside it, the same of every shard");
}

void refuse_same_file(const std::string& option, const std::string& path, const std::string& other_option,
                      const std::string& other) {
  std::error_code missing;
  const auto place = [&](const std::string& file) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file), missing);
  };
  if (path.empty() || other.empty()) return;
  if (!(place(path) == place(other) || std::filesystem::equivalent(path, other, missing))) return;
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path))
    return;  // /dev/stdout, a pipe
  throw BadInput(
      fmt::format("{} {}: the same file as {}, expected another", option, in_quotes(path), other_option));
}

void set_invocation(int argc, const char* const* argv) {
  if (argc < 1) return;
  program_text = command_text = shell_word(std::string(argv[0]));
  argument_list.assign(argv + 1, argv + argc);
  for (const std::string& word : argument_list) command_text += ' ' + shell_word(word);
}
const std::string& invoked_program() { return program_text; }
const std::string& invoked_command() { return command_text; }
std::string invoked_command_without(const std::string& flag) {
  std::string text = program_text;
  for (const std::string& word : argument_list)
    if (word != flag) text += ' ' + shell_word(word);
  return text;
}

std::string invoked_command_of_all_shards() {
  constexpr std::string_view with_value[] = {"--shard", "--output",  "--json",
                                             "--junit", "--threads", "--workers"};
  std::string text = program_text;
  for (std::size_t i = 0; i < argument_list.size(); ++i) {
    const std::string& word = argument_list[i];
    const auto names = [&](std::string_view option) { return word == option; };
    const auto holds = [&](std::string_view option) { return word.starts_with(std::string(option) + '='); };
    if (std::ranges::any_of(with_value, names))
      ++i;
    else if (word != "--resume" && std::ranges::none_of(with_value, holds))
      text += ' ' + shell_word(word);
  }
  return text;
}

void note(const std::string& text) {
  static std::set<std::string> said;
  if (said.insert(text).second) std::cerr << "attest: note: " << printable(text, 2000) << '\n';
}

void note_inputs(const Tensors& fields, const std::string& where) {
  for (const auto& [name, tensor] : fields) {
    const auto count =
        std::count_if(tensor.data.begin(), tensor.data.end(), [](double x) { return std::isnan(x); });
    if (count > 0)
      note(fmt::format("{}: {} holds {} NaN: the outputs that they reach are NaN", where, in_quotes(name),
                       count));
  }
}

void note_options(const Options& options) {
  if (options.epsilon != 0 && !options.normalize) note("epsilon has no effect without normalize=true");
}

}  // namespace attest
