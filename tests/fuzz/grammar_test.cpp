#include "fuzz/grammar.hpp"

#include <gmock/gmock.h>

#include <map>

#include "fuzz/subject.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

// A kernel and what the grammar asks of it.
struct Asked {
  explicit Asked(const std::string& name, const std::string& limits = "")
      : kernel(find_subjects(name, "", {}).at(0).kernel),
        context{kernel, operator_named(kernel.op, kernel.variant), 1, Effort::quick} {
    if (!limits.empty()) kernel.limits = limits;
  }
  Kernel kernel;
  BatteryContext context;
};

FuzzInput spelled_integers(const Kernel& kernel, Question question) {
  FuzzInput input;
  input.question = question, input.zeros = true;
  input.shape = parse_case(kernel.op + " T=3 d=2 dv=1 seed=5");
  input.edits = {{"q", {0, 0, 0, 0}, 1}, {"k", {0, 0, 0, 0}, 1}, {"v", {0, 0, 0, 0}, 1}};
  return input;
}

TEST(Grammar, ChangesEvenAnInputOfWhichNoValueCanBeChanged) {
  const Asked asked("cpu.linear.chunk16.fp32");
  const Grammar grammar(asked.context);
  Random random(7);
  for (const Question question : all_questions)
    for (int i = 0; i < 20; ++i) {
      const FuzzInput input = spelled_integers(asked.kernel, question);
      for (const FuzzInput& changed : {grammar.mutate(input, random), grammar.mutate_values(input, random)}) {
        EXPECT_EQ(changed.shape.op, "linear");
        EXPECT_TRUE(!is_battery(question) || changed.shape.seed != input.shape.seed);
      }
    }
}

TEST(Grammar, DrawsWithinTheLimitsOfTheKernel) {
  for (const char* limits : {"h=16", "b=3", "t=64..100", "d=4..8 dv=4 t=17", "h=3,6 b=2..4"}) {
    const Asked asked("cpu.linear.chunk16.fp32", limits);
    const Grammar grammar(asked.context);
    Random random(3);
    for (int i = 0; i < 300; ++i) {
      const FuzzInput drawn = i % 7 == 0 ? grammar.few_roundings(random) : grammar.draw(random);
      for (const FuzzInput& input : {drawn, grammar.mutate(drawn, random)})
        if (!is_battery(input.question)) {
          EXPECT_EQ(outside_limits(limits, input.shape), "") << to_text(input.shape);
        }
    }
  }
}

TEST(Grammar, DrawsWhatIsRareAndKeepsItSmall) {
  const Asked asked("cpu.gated_delta.chunk16.fp32");
  const Grammar grammar(asked.context);
  Random random(9);
  std::map<std::string, int> seen;
  const auto see = [&](const std::string& what, bool there) { seen[what] += there; };
  for (int i = 0; i < 4000; ++i) {
    const FuzzInput input = grammar.draw(random);
    const Case& c = input.shape;
    for (const Index d : {7, 15, 16, 31, 48, 63, 64, 65, 127, 128})
      see("d" + std::to_string(d), c.key_dim == d);
    for (const Index d : {7, 15, 16, 31, 63, 64, 65, 127, 128, 129})
      see("dv" + std::to_string(d), c.value_dim == d);
    see("three", c.heads == 3 * c.heads_q || c.heads == 3 * c.heads_k || c.heads == 3 * c.heads_v);
    see("sequences", c.packed.size() > 16);
    see("tokens", *c.tokens >= 400);
    see("linear gates", input.linear_gates);
  }
  for (const auto& [what, times] : seen) EXPECT_GT(times, 0) << what;
}

// What a drawn input has, as "axis:word": two words of one axis exclude one another.
std::vector<std::string> words_of(const FuzzInput& input) {
  const Case& c = input.shape;
  const Options& o = c.options;
  const bool square = c.key_dim == c.value_dim && c.key_dim % 16 == 0;
  std::vector<std::string> words;
  const auto add = [&](const std::string& axis, const std::string& word) {
    words.push_back(axis + ':' + word);
  };
  add("question", input.question != Question::gradient && is_lattice(input.question)
                      ? "integers"
                      : std::string(question_name(input.question)));
  add("tokens", *c.tokens < 4 ? "few" : *c.tokens > 320 ? "many" : "some");
  add("widths", square              ? "square " + std::to_string(c.key_dim)
                : c.key_dim >= 48   ? "wide keys"
                : c.value_dim >= 64 ? "wide values"
                                    : "narrow");
  add("heads", c.heads == 1 ? "one" : c.heads_q || c.heads_k || c.heads_v ? "shared" : "several");
  add("sequences", !c.packed.empty() ? "packed" : c.batch > 1 ? "batch" : "one");
  add("state", input.before > 0 ? "continued" : "fresh");
  add("scale", !o.scale ? "none" : *o.scale < 0 ? "negative" : "positive");
  if (o.ridge != 0) add("ridge", "there");
  if (o.normalize) add("normalize", "there");
  if (o.decay && *o.decay != Rational(1)) add("decay", "there");
  if (input.linear_gates) add("linear gates", "there");
  if (!input.powers.empty()) add("powers", "there");
  for (const ValueEdit& edit : input.edits)
    if (edit.field == "g") return add("gates", "there"), words;
  return words;
}

std::map<std::string, int> pairs_drawn(const Grammar& grammar, int draws) {
  std::map<std::string, int> pairs;
  Random random(11);
  for (int i = 0; i < draws; ++i) {
    const FuzzInput input = grammar.draw(random);
    if (is_battery(input.question)) continue;
    const auto words = words_of(input);
    for (std::size_t a = 0; a < words.size(); ++a)
      for (std::size_t b = a; b < words.size(); ++b) ++pairs[words[a] + " & " + words[b]];
  }
  return pairs;
}

int times_drawn(const std::map<std::string, int>& pairs, const std::string& a, const std::string& b) {
  int times = 0;
  for (const std::string& pair : {a + " & " + b, b + " & " + a})
    if (const auto found = pairs.find(pair); found != pairs.end()) times += found->second;
  return times;
}

TEST(Grammar, DrawsTogetherWhatKernelsHandleApart) {
  const std::pair<const char*, std::vector<const char*>> wanted[] = {
      {"widths:square 16", {"question:integers", "question:value", "question:again", "tokens:many"}},
      {"widths:square 32", {"question:integers", "question:value", "sequences:batch", "heads:shared"}},
      {"widths:square 64", {"question:integers", "state:continued", "heads:several", "sequences:packed"}},
      {"widths:square 128", {"question:integers", "state:continued", "heads:several", "sequences:packed"}},
      {"tokens:many",
       {"heads:several", "heads:shared", "state:continued", "sequences:packed", "sequences:batch",
        "question:integers", "question:value", "scale:negative"}},
      {"widths:wide keys", {"heads:shared", "state:continued", "sequences:packed", "sequences:batch"}},
      {"widths:wide values", {"heads:shared", "state:continued", "sequences:packed", "sequences:batch"}},
      {"scale:negative",
       {"question:integers", "question:value", "question:again", "question:separate", "state:continued",
        "heads:shared", "sequences:packed", "widths:square 32"}}};
  for (const char* name : {"cpu.linear.chunk16.fp32", "cpu.gated_delta.chunk16.fp32"}) {
    const Asked asked(name);
    const auto pairs = pairs_drawn(Grammar(asked.context), 12000);
    for (const auto& [one, others] : wanted)
      for (const std::string other : others)
        EXPECT_GT(times_drawn(pairs, one, other), 0) << name << ": " << one << " & " << other;
    EXPECT_EQ(times_drawn(pairs, "question:integers", "normalize:there"), 0) << "of no certificate";
  }
}

TEST(Grammar, LeavesALimitThatAdmitsNothingSmallToTheKernelsRefusal) {
  const Asked asked("cpu.linear.chunk16.fp32", "t=100000..200000");
  Random random(3);
  const FuzzInput input = Grammar(asked.context).draw(random);
  EXPECT_LT(*input.shape.tokens, 10000);
}

}  // namespace
}  // namespace attest
