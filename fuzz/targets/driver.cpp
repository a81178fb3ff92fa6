// The plain driver of the targets, which needs no libFuzzer: every file of the corpus as it is, then a fixed number of
// mutations of each (mutator.hpp), the same ones every time. A fault ends the process; before it does, a line says which
// input it was: with --only added the driver runs that one alone, with --show it prints its bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/targets/mutator.hpp"
#include "fuzz/targets/target.hpp"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::uint64_t mutations = 100, seed = 1, seconds = 20;
  std::string only;  // FILE:MUTATION
  bool show = false;
  std::string write;  // a folder
  std::vector<fs::path> paths;
};

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(
      stderr,
      "fuzz driver: %s; usage: [--mutations N] [--seed N] [--seconds N] [--only FILE:MUTATION [--show]] "
      "[--write FOLDER] FILE-OR-FOLDER...\n",
      printable(what, 400).c_str());
  std::exit(2);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto next = [&] { return std::string_view(i + 1 < argc ? argv[++i] : ""); };
    const auto number = [&] {
      const std::string_view text = next();
      std::uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (text.empty() || error != std::errc() || end != text.data() + text.size())
        refuse(std::string(word) + " " + in_quotes(text) + ": expected a whole number");
      return value;
    };
    if (word == "--mutations")
      arguments.mutations = number();
    else if (word == "--seed")
      arguments.seed = number();
    else if (word == "--seconds")
      arguments.seconds = number();
    else if (word == "--only")
      arguments.only = next();
    else if (word == "--write")
      arguments.write = next();
    else if (word == "--show")
      arguments.show = true;
    else if (word.starts_with('-'))
      refuse(in_quotes(word) + ": unknown");
    else
      arguments.paths.emplace_back(word);
  }
  if (arguments.show && arguments.only.empty()) refuse("--show: expected --only FILE:MUTATION beside it");
  return arguments;
}

struct Seed {
  std::string name, bytes;
};

std::vector<Seed> corpus(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::exists(path)) refuse(path.string() + ": no such file or folder");
    if (!fs::is_directory(path)) files.push_back(path);
    if (fs::is_directory(path))
      for (const auto& entry : fs::recursive_directory_iterator(path))
        if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) refuse("the corpus is empty, expected at least one file");
  std::vector<Seed> seeds;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.push_back({path.string(), {std::istreambuf_iterator<char>(file), {}}});
  }
  return seeds;
}

std::vector<std::string> dictionary(const std::vector<Seed>& seeds) {
  std::vector<std::string> words = json_words();
  for (const Seed& seed : seeds)
    for (std::string& word : words_of(seed.bytes)) words.push_back(std::move(word));
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

// Mutation 0 is the file itself; one in sixteen joins two files, the others edit one up to eight times.
std::string mutation(const std::vector<Seed>& seeds, std::size_t file, std::uint64_t index,
                     Mutator& mutator) {
  std::string text = seeds[file].bytes, rest;
  if (index == 0) return text;
  mutator.begin(index);
  if (mutator.draw(16) == 0) {
    const std::string& other = seeds[mutator.draw(seeds.size())].bytes;
    text = text.substr(0, mutator.draw(text.size() + 1)) + other.substr(mutator.draw(other.size() + 1));
  }
  for (std::uint64_t edits = 1 + mutator.draw(8); edits > 0; --edits) mutator.edit(text, rest);
  return text;
}

// What is said when an input ends the process, ready before it runs.
std::array<char, 600> last_words{};

void on_end(int signal) {
  const char* how = signal == SIGALRM ? ": it did not end in time\n" : "\n";
  const ssize_t written = write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data()));
  if (written < 0 || write(STDERR_FILENO, how, std::strlen(how)) < 0) _exit(70);
  std::signal(signal == SIGALRM ? SIGABRT : signal, SIG_DFL);
  std::raise(signal == SIGALRM ? SIGABRT : signal);
}

void watch() {
  static std::array<char, 1 << 16> stack;  // of its own: the other one may have overflowed
  const stack_t own{stack.data(), 0, stack.size()};
  sigaltstack(&own, nullptr);
  struct sigaction action {};
  action.sa_handler = on_end;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    sigaction(signal, &action, nullptr);
}

void run(const std::string& input, std::uint64_t seconds) {
  alarm(static_cast<unsigned>(seconds));
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  alarm(0);
}

// The inputs as files, for readers in other languages.
void write_input(const std::string& input, const Seed& seed, std::uint64_t index, const std::string& folder) {
  const std::string name = fs::path(seed.name).filename().string() + '.' + std::to_string(index);
  std::ofstream file(fs::path(folder) / name, std::ios::binary);
  if (!(file << input << std::flush)) refuse(folder + ": cannot be written, expected a folder");
}

// The bytes of an input, or what they do.
void use(const std::string& input, const std::string& name, const Arguments& arguments) {
  if (arguments.show) {
    std::fwrite(input.data(), 1, input.size(), stdout);
    return;
  }
  std::snprintf(last_words.data(), last_words.size(), "fuzz driver: fault with --seed %llu --only %s",
                static_cast<unsigned long long>(arguments.seed), name.c_str());
  run(input, arguments.seconds);
}

int drive(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const std::vector<Seed> seeds = corpus(arguments.paths);
  Mutator mutator(dictionary(seeds), arguments.seed);
  watch();
  std::uint64_t inputs = 0;
  for (std::size_t file = 0; file < seeds.size(); ++file)
    for (std::uint64_t index = 0; index <= arguments.mutations; ++index) {
      const std::string name = seeds[file].name + ':' + std::to_string(index);
      if (!arguments.only.empty() && arguments.only != name) continue;
      const std::string input = mutation(seeds, file, index, mutator);
      if (arguments.write.empty())
        use(input, name, arguments);
      else
        write_input(input, seeds[file], index, arguments.write);
      ++inputs;
    }
  if (inputs == 0) refuse("--only " + in_quotes(arguments.only) + ": no such input");
  if (!arguments.show && arguments.write.empty())
    std::printf("%zu files, %llu inputs, seed %llu: nothing found\n", seeds.size(),
                static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(arguments.seed));
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::drive(argc, argv); }
