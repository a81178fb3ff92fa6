#include "fuzz/ask.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "fuzz/opening.hpp"
#include "fuzz/subject.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/adapters/doors.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

FuzzInput question(Question question, const std::string& line) {
  FuzzInput input;
  input.question = question, input.shape = parse_case(line);
  return input;
}

Answer answer_of(const Kernel& kernel, const FuzzInput& input) {
  return ask({kernel, operator_named(kernel.op, kernel.variant), 1, Effort::quick}, input);
}
Answer answer_of(const std::string& kernel, const FuzzInput& input) {
  return answer_of(find_subjects(kernel, "", {}).at(0).kernel, input);
}

// Values within their bound, in another order of summation than in a call of their own.
TEST(Ask, SequencesThatDifferInTheirRoundingFromACallOfTheirOwn) {
  const FuzzInput input =
      question(Question::separate, "hla2 T=40 d=4 dv=3 H=2 B=1 packed=0:7:40 recipe=uniform seed=3");
  FuzzInput value = input;
  value.question = Question::value;
  EXPECT_TRUE(answer_of("mutant.hla2.packed_chunks_global", input).failed());
  EXPECT_EQ(answer_of("mutant.hla2.packed_chunks_global", value).outcome.verdict, Verdict::pass);
  EXPECT_EQ(answer_of("cpu.hla2.chunk16.direct.fp32", input).outcome.verdict, Verdict::pass);
}

TEST(Ask, BatchEntriesInCallsOfTheirOwn) {
  const FuzzInput input = question(Question::separate, "hla2 T=20 d=4 dv=3 H=2 B=3 recipe=uniform seed=3");
  EXPECT_TRUE(answer_of("mutant.hla2.address_batch_zero", input).failed());
  EXPECT_EQ(answer_of("cpu.hla2.chunk16.direct.fp32", input).outcome.verdict, Verdict::pass);
}

TEST(Ask, IntegersAgainAfterOtherDataInTheSameBuffers) {
  const FuzzInput input = question(Question::lattice_again, "hla2 T=20 d=4 dv=3 H=2 B=1 seed=64");
  FuzzInput once = input;
  once.question = Question::lattice;
  for (const char* name : {"cache_by_shape", "cache_by_address", "cache_without_decay", "race_lost_row"}) {
    const std::string mutant = std::string("mutant.hla2.") + name;
    EXPECT_TRUE(answer_of(find_subjects(mutant, "", {}).at(0).fresh(), input).failed()) << name;
    EXPECT_FALSE(answer_of(find_subjects(mutant, "", {}).at(0).fresh(), once).failed()) << name;
  }
  EXPECT_EQ(answer_of("cpu.hla2.chunk16.direct.fp32", input).outcome.verdict, Verdict::pass);
}

// One call of those that a question makes is wrong, whichever it is: it is judged, of this seed.
TEST(Ask, JudgesEveryCallThatItMakes) {
  FuzzInput integers = question(Question::lattice_again, "hla2 T=20 d=4 dv=3 H=2 B=1 decay=1 seed=64");
  FuzzInput continued = integers;
  continued.before = 3;
  const FuzzInput values =
      question(Question::again, "hla2 T=20 d=4 dv=3 H=2 B=1 decay=1/2 recipe=uniform seed=64");
  FuzzInput new_data = values;
  new_data.question = Question::new_data;
  const Kernel right = find_subjects("cpu.hla2.stream.direct.fp32", "", {}).at(0).kernel;
  for (const FuzzInput& input : {integers, continued, values, new_data}) {
    int calls = 0, wrong_at = 0;
    Kernel kernel = right;
    kernel.run = [&](const Problem& problem) {
      KernelResult result = right.run(problem);
      if (++calls == wrong_at) result.outputs.at("o").data[1] += 1;
      return result;
    };
    ASSERT_TRUE(judges_all_calls(input));
    EXPECT_EQ(answer_of(kernel, input).outcome.verdict, Verdict::pass);
    const int all = calls;
    EXPECT_GE(all, 3);
    for (wrong_at = 1; wrong_at <= all; ++wrong_at) {
      calls = 0;
      EXPECT_TRUE(answer_of(kernel, input).failed())
          << question_name(input.question) << ", call " << wrong_at << " of " << all;
    }
  }
}

TEST(Ask, GradientsOfOneInputBitByBit) {
  FuzzInput input =
      question(Question::gradient, "hla3 T=35 d=3 dv=4 H=4 Hk=2 Hv=2 B=1 packed=0:9:9:10:35 seed=5");
  input.before = 3;
  const Answer wrong = answer_of("mutant.hla3.backward_state_not_carried", input);
  EXPECT_EQ(failed_part(wrong), "gradients") << wrong.outcome.reason;
  EXPECT_EQ(answer_of("cpu.hla3.chunk16.fp32", input).outcome.reason, "the kernel computes no gradients");
}

TEST(Ask, TensorsApartInMemoryOfAPlugInThatDeclaresStrides) {
  const std::filesystem::path program = std::getenv("ATTEST_PROGRAM");
  set_worker_program(program.string());
  const std::string plugin = (program.parent_path() / "plugins" / "hostile.so").string();
  const auto asked = [&](const std::string& glob, Question what) {
    DoorOptions doors;
    doors.plugins = {plugin + ':' + glob};
    const Kernel kernel = open_doors(doors).at(0);
    return answer_of(kernel, question(what, kernel.op + " T=12 d=4 dv=4 H=1 B=1 recipe=uniform seed=3"))
        .outcome;
  };
  EXPECT_EQ(asked("correct", Question::strided).verdict, Verdict::pass);
  EXPECT_EQ(asked("ignores_strides", Question::value).verdict, Verdict::pass);
  EXPECT_THAT(asked("ignores_strides", Question::strided).reason, HasSubstr("where no output lies"));
  const FuzzInput input = question(Question::strided, "hla2 T=12 d=3 dv=3 H=2 B=1 seed=3");
  EXPECT_EQ(answer_of("cpu.hla2.chunk16.direct.fp32", input).outcome.verdict, Verdict::not_run);
}

TEST(Opening, RightKernelsAreNotFaultedAndMostOfItIsDecided) {
  for (const Kernel& kernel : unedited_kernels()) {
    const BatteryContext context{kernel, operator_named(kernel.op, kernel.variant), 1, Effort::quick};
    Random random(1, "opening");
    std::size_t decided = 0;
    const auto inputs = opening_inputs(context, random);
    EXPECT_GE(inputs.size(), 11u);
    for (const FuzzInput& input : inputs) {
      if (is_battery(input.question)) continue;
      const Answer answer = ask(context, input);
      EXPECT_FALSE(answer.failed()) << kernel.name << ' ' << question_name(input.question) << ": "
                                    << answer.outcome.reason;
      decided += answer.decided();
    }
    EXPECT_GE(decided + (kernel.name.ends_with(".bf16") ? 4 : 1) + 1, inputs.size()) << kernel.name;
  }
}

}  // namespace
}  // namespace attest
