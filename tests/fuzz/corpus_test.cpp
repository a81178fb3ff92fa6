#include "fuzz/corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "fuzz/ask.hpp"
#include "fuzz/grammar.hpp"
#include "fuzz/subject.hpp"
#include "gpu_checks/battery/call.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

constexpr const char* good =
    "attest.corpus/1\n"
    "# a remark\n"
    "check value\n"
    "kernel cpu.hla2.stream.direct.fp32\n"
    "case hla2 variant=masked T=3 d=1 dv=1 H=1 B=1 decay=1 recipe=gaussian gates=none seed=7\n"
    "before 2\n"
    "power q -14\n"
    "values zeros\n"
    "q[0,2,0,0] 0x1.8p+1\n"
    "before.k[0,0,0,0] -0x1p-149\n"
    "v[0,1,0,0] nan\n"
    "end 3\n";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  text.replace(text.find(what), what.size(), by);
  return text;
}

std::string refusal(const std::string& text) {
  try {
    parse_corpus_case(text, "x.case");
  } catch (const BadInput& error) {
    return error.what();
  }
  return "accepted";
}

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

TEST(Corpus, ReadsWhatItWrites) {
  const CorpusCase one = parse_corpus_case(good, "x.case");
  EXPECT_EQ(one.input.question, Question::value);
  EXPECT_EQ(one.input.before, 2);
  EXPECT_EQ(one.input.powers.at("q"), -14);
  ASSERT_EQ(one.input.edits.size(), 3u);
  EXPECT_EQ(one.input.edits[0].value, 3);
  EXPECT_EQ(one.input.edits[1].field, "before.k");
  EXPECT_EQ(to_text(one), replaced(good, "# a remark\n", ""));
}

TEST(Corpus, WhatIsPrintedWithAnIndentationCanBePasted) {
  std::string indented;
  for (const char c : "\n" + std::string(good)) indented += c == '\n' ? "\n   \t" : std::string(1, c);
  EXPECT_EQ(to_text(parse_corpus_case(indented, "x.case")), to_text(parse_corpus_case(good, "x.case")));
}

TEST(Corpus, SkipsWhatIsTooLargeOrOfAnOperatorThatThereIsNot) {
  const TemporaryFolder folder;
  write(folder / "good.case", good);
  write(folder / "huge.case", replaced(good, "T=3 d=1", "T=200000 d=3000"));
  write(folder / "other.case", replaced(good, "case hla2", "case hla9"));
  const Corpus corpus = read_corpus(folder.path());
  EXPECT_EQ(corpus.cases.size(), 1u);
  ASSERT_EQ(corpus.skipped.size(), 2u);
  EXPECT_THAT(corpus.skipped[0], HasSubstr("huge.case: its tensors take 9."));
  EXPECT_THAT(corpus.skipped[1], testing::AllOf(HasSubstr("other.case"), HasSubstr("hla9")));
}

TEST(Corpus, AnInputOfTheGrammarMeansTheSameAfterARoundTrip) {
  for (const char* name : {"cpu.hla2.chunk16.direct.fp32", "cpu.log_linear_gated_delta.chunk16.bf16"}) {
    const Kernel& kernel = *find_kernels(name, "").at(0);
    const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant), 1, Effort::quick};
    const Grammar grammar(context);
    Random random(5, "round trip");
    for (int i = 0; i < 40; ++i) {
      const FuzzInput input = grammar.mutate(grammar.draw(random), random);
      const FuzzInput again = parse_corpus_case(to_text(CorpusCase{input, name, "", ""}), "x").input;
      const Built before = build(context, input), after = build(context, again);
      ASSERT_EQ(before.problem.has_value(), after.problem.has_value());
      if (!before.problem) continue;
      for (const auto& [field, tensor] : before.problem->fields)
        for (std::size_t n = 0; n < tensor.data.size(); ++n)
          ASSERT_EQ(std::bit_cast<std::uint64_t>(tensor.data[n]),
                    std::bit_cast<std::uint64_t>(after.problem->fields.at(field).data[n]))
              << field << '\n'
              << to_text(CorpusCase{input, name, "", ""});
    }
  }
}

void expect_spelled_out_alike(const Kernel& kernel) {
  const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant), 1, Effort::quick};
  const Grammar grammar(context);
  Random random(9, "spelled");
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    const FuzzInput input = grammar.draw(random), spelled = spelled_out(context, input);
    const Built before = build(context, input), after = build(context, spelled);
    if (!before.problem || is_battery(input.question)) continue;
    ASSERT_TRUE(after.problem) << after.why_not;
    ++compared;
    const FuzzInput read = parse_corpus_case(to_text(CorpusCase{spelled, "x", "", ""}), "x").input;
    ASSERT_EQ(read.edits.size(), spelled.edits.size());
    for (const auto& [field, tensor] : before.problem->fields)
      for (std::size_t n = 0; n < tensor.data.size() && after.problem->field(field); ++n)
        ASSERT_TRUE(tensor.data[n] == after.problem->fields.at(field).data[n] || std::isnan(tensor.data[n]))
            << field;
  }
  EXPECT_GT(compared, 20);
}

TEST(Corpus, AnInputSpelledOutIsTheSameProblem) {
  expect_spelled_out_alike(*find_kernels("cpu.gated_delta.chunk16.fp32", "").at(0));
}
TEST(Corpus, AnInputWithCotangentsSpelledOutIsTheSameProblem) {
  for (const char* name :
       {"mutant.hla2.backward_border_twice", "mutant.log_linear_mamba2.backward_border_twice"})
    expect_spelled_out_alike(find_subjects(name, "", {}).at(0).kernel);
}

TEST(Corpus, SaysWhereAFileIsDamaged) {
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_THAT(refusal(""), HasSubstr("x.case: line 1: the end of the file: expected attest.corpus/1"));
  EXPECT_THAT(refusal(replaced(good, "attest.corpus/1", "attest.corpus/2")),
              HasSubstr("line 1: \"attest.corpus/2\": expected attest.corpus/1"));
  EXPECT_THAT(refusal(replaced(good, "recipe=gaussian", "recipe=gossip")), HasSubstr("recipe=gossip"));
  EXPECT_THAT(refusal(replaced(good, "check value", "check valor")), HasSubstr("line 3"));
  EXPECT_THAT(refusal(replaced(good, "end 3\n", "")),
              HasSubstr("line 12: the end of the file: expected end 3"));
  EXPECT_THAT(refusal(replaced(good, "v[0,1,0,0] nan\n", "")), HasSubstr("expected end 2"));
  EXPECT_THAT(refusal(replaced(good, "0x1.8p+1", "1.5")), HasSubstr("line 9"));
  EXPECT_THAT(refusal(replaced(good, "q[0,2,0,0]", "w[0,2,0,0]")), HasSubstr("line 9"));
  EXPECT_THAT(refusal(replaced(good, "before 2", "before -2")), HasSubstr("line 6"));
  EXPECT_THAT(refusal(replaced(good, "power q", "power z")), HasSubstr("line 7"));
  EXPECT_THAT(refusal(std::string(good) + "q[0,0,0,0] 0x1p+0\n"), HasSubstr("nothing after the end"));
}

// Cut off anywhere, a file is refused and not taken for a shorter one; the control is the whole text above.
TEST(Corpus, RefusesEveryPrefixOfAFile) {
  const std::string text = good;
  for (std::size_t size = 0; size + 1 < text.size(); ++size)
    EXPECT_NE(refusal(text.substr(0, size)), "accepted") << size;
}

TEST(Corpus, SkipsWhatItCannotReadAndLeavesItThere) {
  const TemporaryFolder folder;
  write(folder / "a.case", good);
  write(folder / "b.case", "garbage");
  write(folder / "c.case", replaced(good, "corpus/1", "corpus/9"));
  write(folder / "d.case", replaced(good, "recipe=gaussian", "recipe=of_tomorrow"));
  write(folder / "notes.txt", "no case");
  const Corpus corpus = read_corpus(folder.path());
  ASSERT_EQ(corpus.cases.size(), 1u);
  ASSERT_EQ(corpus.skipped.size(), 3u);
  EXPECT_THAT(corpus.skipped[0], HasSubstr("b.case: line 1"));
  EXPECT_THAT(corpus.skipped[2], HasSubstr("of_tomorrow"));
  EXPECT_EQ(folder.entries(), 5u);
}

// Tests run from the root of the repository.
TEST(Corpus, OfTheRepositoryCanBeReadWhole) {
  const Corpus corpus = read_corpus("fuzz/corpus");
  EXPECT_THAT(corpus.skipped, testing::IsEmpty());
  ASSERT_FALSE(corpus.cases.empty());
  for (const CorpusCase& one : corpus.cases) {
    const std::string name = std::filesystem::path(one.file).filename().string();
    EXPECT_THAT(
        name, testing::StartsWith(one.input.shape.op + '.' + std::string(question_name(one.input.question))));
  }
}

// What was found on registered kernels were faults of bounds, and is mended.
TEST(Corpus, OfTheRepositoryFailsNoRegisteredKernel) {
  for (const CorpusCase& one : read_corpus("fuzz/corpus").cases) {
    const auto kernels = find_kernels(one.kernel, "");
    ASSERT_EQ(kernels.size(), 1u) << one.file;
    for (const Kernel* kernel : kernels) {
      const Case& shape = one.input.shape;
      const BatteryContext context{*kernel, operator_named(shape.op, shape.variant), shape.seed,
                                   Effort::quick};
      const Answer answer = ask(context, one.input);
      EXPECT_NE(answer.outcome.verdict, Verdict::fail) << one.file << ": " << answer.outcome.reason;
    }
  }
}

TEST(Corpus, HoldsACaseOnceWhoeverFoundIt) {
  const TemporaryFolder folder;
  CorpusCase one = parse_corpus_case(good, "x");
  const auto path = add_to_corpus(folder.path(), one);
  EXPECT_THAT(path.filename().string(), testing::MatchesRegex("hla2\\.value\\.[0-9a-f]+\\.case"));
  one.kernel = "another";
  EXPECT_TRUE(add_to_corpus(folder.path(), one).empty());
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Corpus, RefusesAFolderThatCannotBeWritten) {
  const TemporaryFolder folder;
  write(folder / "file", "x");
  EXPECT_THROW(require_writable(folder / "file"), BadInput);
  EXPECT_THROW(require_writable("/proc/attest_corpus"), BadInput);
  require_writable(folder / "new");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "new"));
}

}  // namespace
}  // namespace attest
