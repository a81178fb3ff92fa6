#include "gpu_checks/battery/battery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "gpu_checks/battery/call.hpp"
#include "gpu_checks/battery/lattice.hpp"
#include "gpu_checks/battery/layout.hpp"
#include "gpu_checks/mutants/mutants.hpp"
#include "reference/forms/batch.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

const Kernel& kernel_named(const std::string& name) { return *find_kernels(name, "").at(0); }

BatteryContext context_of(const Kernel& kernel, std::uint64_t seed = 1) {
  return {kernel, operator_named(kernel.op, kernel.variant), seed, Effort::quick};
}

// The kernel, its outputs changed afterwards.
Kernel changed(Kernel kernel, std::function<void(const Problem&, Tensors& outputs)> change) {
  kernel.run = [run = kernel.run, change](const Problem& problem) {
    KernelResult result = run(problem);
    change(problem, result.outputs);
    return result;
  };
  return kernel;
}

CheckOutcome outcome_of(const Kernel& kernel, const std::string& check, std::uint64_t seed = 1) {
  return run_battery(context_of(kernel, seed), check).at(0).outcome;
}

class Kernels : public testing::TestWithParam<const char*> {};

TEST_P(Kernels, ThatAreRightPassEveryCheckThatCanRun) {
  for (const std::uint64_t seed : {1, 2})
    for (const BatteryEntry& entry : run_battery(context_of(kernel_named(GetParam()), seed), "[!w]*")) {
      EXPECT_NE(entry.outcome.verdict, Verdict::fail) << entry.check->name << ": " << entry.outcome.reason;
      EXPECT_NE(entry.outcome.verdict, Verdict::suspect) << entry.check->name << ": " << entry.outcome.reason;
    }
}

INSTANTIATE_TEST_SUITE_P(Some, Kernels,
                         testing::Values("cpu.hla2.chunk16.subtract.bf16", "cpu.hla2.scan.direct.fp32",
                                         "cpu.hla2.printed.stream.fp32", "cpu.ahla.chunk16.bf16",
                                         "cpu.hla3.chunk16.fp32", "cpu.gated_delta.chunk16.bf16",
                                         "cpu.log_linear_gated_delta.chunk16.bf16", "cpu.softmax.stream.bf16",
                                         "cpu.retention.stream.bf16state", "cpu.linear.chunk16.bf16"));

// width has tests of its own, and so has gradient (below).
TEST(Battery, KernelsThatTheMutantsAreMadeFromPass) {
  for (const Kernel& kernel : unedited_kernels())
    for (const char* checks : {"[!wg]*", "gates"})
      for (const BatteryEntry& entry : run_battery(context_of(kernel), checks))
        EXPECT_EQ(entry.outcome.verdict, Verdict::pass)
            << kernel.name << ' ' << entry.check->name << ": " << entry.outcome.reason;
}

TEST(Battery, RefusesACheckThatDoesNotExist) {
  EXPECT_THROW(run_battery(context_of(kernel_named("cpu.linear.chunk16.fp32")), "nothing"), BadInput);
}

// A kernel behind a door gets its inputs in the formats of its contract, which must hold what its outputs are compared with.
TEST(Battery, AsksExactQuestionsInNumbersThatTheInputFormatsHold) {
  for (const char* name :
       {"cpu.linear.stream.bf16", "cpu.linear.stream.bf16state", "cpu.linear.chunk64.fp16"}) {
    const Kernel& kernel = kernel_named(name);
    Index asked = 0;
    const Kernel watched = changed(kernel, [&](const Problem& problem, Tensors&) {
      ++asked;
      const Problem rounded = round_inputs(kernel.contract, problem);
      for (const auto& [field, tensor] : problem.fields)
        EXPECT_EQ(rounded.fields.at(field).data, tensor.data) << name << ' ' << field;
    });
    for (const char* check : {"lattice", "shapes", "paths"})
      for (const std::uint64_t seed : {1, 2}) run_battery(context_of(watched, seed), check);
    EXPECT_GT(asked, 50);
  }
}

TEST(Battery, AsksTheSameQuestionsForTheSameSeed) {
  const Kernel& kernel = kernel_named("cpu.ahla.chunk16.fp32");
  std::vector<double> seen[2];
  for (auto& list : seen) {
    const Kernel watched = changed(kernel, [&](const Problem& problem, Tensors&) {
      for (const auto& [name, tensor] : problem.fields)
        list.insert(list.end(), tensor.data.begin(), tensor.data.end());
    });
    run_battery(context_of(watched, 5), "lattice");
  }
  EXPECT_FALSE(seen[0].empty());
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(Battery, SaysWhereAKernelIsWrong) {
  const Kernel wrong =
      changed(kernel_named("cpu.hla2.chunk16.direct.fp32"), [](const Problem& p, Tensors& outputs) {
        if (p.tokens > 20 && p.heads > 1)
          outputs["o"].data[static_cast<std::size_t>((20 * p.heads + 1) * p.value_dim + 2)] += 1;
      });
  const CheckOutcome outcome = outcome_of(wrong, "lattice");
  EXPECT_EQ(outcome.verdict, Verdict::fail);
  EXPECT_EQ(outcome.places.tokens, "20");
  EXPECT_EQ(outcome.places.chunk_position, "4");
  EXPECT_EQ(outcome.places.heads, "1");
  EXPECT_EQ(outcome.places.columns, "2");
  EXPECT_THAT(outcome.reason, HasSubstr("token 20"));
  EXPECT_EQ(outcome.worst->index[1], 20);
}

TEST(Battery, TakesTheWordsOfPlaceAndTheWorstElementFromOneInput) {
  const Kernel wrong =
      changed(kernel_named("cpu.hla2.chunk16.direct.fp32"), [](const Problem& p, Tensors& outputs) {
        // A small error in the first row of short inputs, a huge one in the last row of the others.
        const bool brief = p.tokens < 20;
        std::vector<double>& o = outputs["o"].data;
        if (!o.empty()) o[brief ? 0 : o.size() - 1] += brief ? 1 : 1e6;
      });
  const CheckOutcome outcome = outcome_of(wrong, "shapes");
  EXPECT_EQ(outcome.verdict, Verdict::fail);
  EXPECT_GT(outcome.differing, 1);
  EXPECT_LT(std::abs(outcome.worst->got - outcome.worst->expected), 2)
      << "of the first input, as the places are";
  EXPECT_THAT(outcome.reason, HasSubstr("on " + std::to_string(outcome.differing) + " of "));
}

TEST(Battery, FailsAKernelThatTurnsNaNIntoZero) {
  const Kernel wrong = changed(kernel_named("cpu.linear.chunk16.fp32"), [](const Problem&, Tensors& outputs) {
    for (double& x : outputs["o"].data) x = std::isnan(x) ? 0 : x;
  });
  EXPECT_EQ(outcome_of(wrong, "containment").verdict, Verdict::fail);
  EXPECT_EQ(outcome_of(kernel_named("cpu.linear.chunk16.fp32"), "containment").verdict, Verdict::pass);
}

TEST(Battery, FailsAFinalStateThatIsWrongBesideARightOutput) {
  const Kernel wrong = changed(kernel_named("cpu.ahla.chunk16.fp32"), [](const Problem&, Tensors& outputs) {
    for (double& x : outputs["final_state.E"].data) x *= 1 + 0x1p-12;
  });
  for (const char* check : {"value", "split", "lattice"})
    EXPECT_EQ(outcome_of(wrong, check).verdict, Verdict::fail) << check;
}

TEST(Battery, FailsAMissingOutputAndAKernelThatFails) {
  const Kernel wrong = changed(kernel_named("cpu.ahla.chunk16.fp32"),
                               [](const Problem&, Tensors& outputs) { outputs.erase("final_state.P"); });
  EXPECT_THAT(outcome_of(wrong, "lattice").reason, HasSubstr("final_state.P is missing"));
  Kernel crashing = kernel_named("cpu.ahla.chunk16.fp32");
  crashing.run = [](const Problem&) { return KernelResult{KernelStatus::failed, "signal 11", {}, 0}; };
  EXPECT_THAT(outcome_of(crashing, "lattice").reason, HasSubstr("signal 11"));
}

TEST(Battery, DoesNotPassAKernelThatTakesNothing) {
  Kernel refusing = kernel_named("cpu.ahla.chunk16.fp32");
  refusing.run = [](const Problem&) { return KernelResult{KernelStatus::unsupported, "never", {}, 0}; };
  const auto entries = run_battery(context_of(refusing), "[!w]*");
  EXPECT_EQ(worst_verdict(entries), Verdict::not_run);
}

// One feature that was announced and could not be looked at: the rest is no pass of the whole.
TEST(Battery, DoesNotPassAKernelThatRefusesWhatItAnnounces) {
  Kernel kernel = kernel_named("cpu.linear.chunk16.fp32");
  EXPECT_EQ(worst_verdict(run_battery(context_of(kernel), "[lps]*")), Verdict::pass);
  kernel.run = [run = kernel.run](const Problem& problem) {
    return problem.cu_seqlens.empty() ? run(problem)
                                      : KernelResult{KernelStatus::unsupported, "not packed", {}, 0};
  };
  EXPECT_EQ(worst_verdict(run_battery(context_of(kernel), "[lps]*")), Verdict::undecided);
}

TEST(Battery, ChecksThatCannotRunSayWhy) {
  Kernel bare = kernel_named("cpu.softmax.stream.fp32");
  bare.features = "";
  for (const BatteryEntry& entry : run_battery(context_of(bare), "[!w]*"))
    if (entry.outcome.verdict == Verdict::not_run) {
      EXPECT_FALSE(entry.outcome.reason.empty()) << entry.check->name;
    }
  EXPECT_THAT(outcome_of(bare, "packing").reason, HasSubstr("packed"));
  for (const char* check : {"lattice", "powers"}) {  // powers of drawn inputs need `deterministic`
    EXPECT_EQ(outcome_of(bare, check).verdict, Verdict::not_run) << check;
    EXPECT_THAT(outcome_of(bare, check).reason, HasSubstr("polynomial")) << check;
  }
  EXPECT_EQ(outcome_of(kernel_named("cpu.softmax.stream.fp32"), "powers").verdict, Verdict::pass);
}

// The kernel, fed with other inputs than it was given.
Kernel fed(Kernel kernel, std::function<void(Problem&)> change) {
  kernel.run = [run = kernel.run, change](Problem problem) {
    change(problem);
    return run(problem);
  };
  return kernel;
}

struct Fault {
  const char *words, *kernel;
  std::function<void(Problem&)> change;
};

// Each changes nothing as long as the features that it needs are asked for one at a time.
const Fault faults_where_features_meet[] = {
    {"columns of the keys from the 65th on ignored", "cpu.retention.chunk16.fp32",
     [](Problem& p) {
       Tensor& k = p.fields.at("k");
       for (std::size_t i = 0; i < k.data.size(); ++i)
         if (static_cast<Index>(i) % k.shape[3] >= 64) k.data[i] = 0;
     }},
    {"the state of the normaliser ignored", "cpu.retention.chunk16.fp32",
     [](Problem& p) {
       if (const auto z = p.fields.find("initial_state.z"); z != p.fields.end())
         std::fill(z->second.data.begin(), z->second.data.end(), 0.0);
     }},
    {"decay of head h % 4", "cpu.retention.chunk16.fp32",
     [](Problem& p) {
       if (const auto decay = p.fields.find("decay"); decay != p.fields.end())
         for (std::size_t h = 4; h < decay->second.data.size(); ++h)
           decay->second.data[h] = decay->second.data[h % 4];
     }},
    {"no scale where the output is normalised", "cpu.retention.chunk16.fp32",
     [](Problem& p) {
       if (p.options.normalize) p.options.scale = std::nullopt;
     }},
    {"states of the sequences from the 7th on ignored", "cpu.retention.chunk16.fp32",
     [](Problem& p) {
       for (auto& [name, tensor] : p.fields)
         if (name.starts_with("initial_state.") && tensor.shape[0] > 6) {
           const auto kept = static_cast<std::ptrdiff_t>(tensor.data.size()) / tensor.shape[0] * 6;
           std::fill(tensor.data.begin() + kept, tensor.data.end(), 0.0);
         }
     }},
    {"linear gates ignored", "cpu.mamba2.chunk16.fp32", [](Problem& p) {
       if (const auto alpha = p.fields.find("alpha"); alpha != p.fields.end())
         std::fill(alpha->second.data.begin(), alpha->second.data.end(), 1.0);
     }}};

TEST(Battery, FailsFaultsThatShowOnlyWhereFeaturesMeet) {
  for (const Fault& fault : faults_where_features_meet) {
    const Kernel& kernel = kernel_named(fault.kernel);
    EXPECT_EQ(outcome_of(fed(kernel, fault.change), "combinations").verdict, Verdict::fail) << fault.words;
    EXPECT_EQ(outcome_of(kernel, "combinations").verdict, Verdict::pass) << fault.kernel;
  }
}

TEST(Battery, CombinesFeaturesOfTheRegisteredKernelsWithoutAFalseAlarm) {
  for (const Kernel& kernel : registered_kernels()) {
    // Wider chunks are the same code, many times as long; other contracts differ in formats alone.
    const bool usual = kernel.name.ends_with(kernel.how.form == Form::chunk ? ".bf16" : ".fp32");
    if ((kernel.how.form == Form::chunk && kernel.how.chunk > 16) || !usual) continue;
    const CheckOutcome outcome = outcome_of(kernel, "combinations");
    EXPECT_NE(outcome.verdict, Verdict::fail) << kernel.name << ": " << outcome.reason;
    EXPECT_NE(outcome.verdict, Verdict::suspect) << kernel.name << ": " << outcome.reason;
  }
}

// Faults beyond the sizes that most inputs have.
TEST(Battery, FailsFaultsThatShowOnlyInWideOrLongOrManySequences) {
  const Kernel& kernel = kernel_named("cpu.mamba2.stream.fp32");
  const auto fails = [&](const char* check, std::function<void(Problem&)> change) {
    EXPECT_EQ(outcome_of(fed(kernel, std::move(change)), check).verdict, Verdict::fail) << check;
  };
  fails("lattice", [](Problem& p) {  // columns from 64 on are read in the first tokens alone
    for (Index t = 20; p.key_dim > 64 && t < p.tokens; ++t)
      for (Index a = 64; a < p.key_dim; ++a)
        p.fields.at("q").data[static_cast<std::size_t>(t * p.heads * p.key_dim + a)] = 0;
  });
  fails("value", [](Problem& p) {  // the gate of every 256th token
    for (Index t = 256; t < p.tokens; t += 256)
      for (Index h = 0; h < p.heads; ++h)
        p.fields.at("g").data[static_cast<std::size_t>(t * p.heads + h)] = 0;
  });
  fails("packing", [](Problem& p) {  // sequences behind the 32nd are one
    if (p.cu_seqlens.size() > 34 && !p.field("initial_state.S"))
      p.cu_seqlens.erase(p.cu_seqlens.begin() + 33, p.cu_seqlens.end() - 1);
  });
  fails("lattice", [](Problem& p) {  // a group of three is taken for one of two
    Tensor& k = p.fields.at("k");
    if (p.heads == 6 && k.shape[2] == 2)
      for (Index row = 0; row < p.batch * p.tokens; ++row)
        for (Index a = 0; a < p.key_dim; ++a) k.data[static_cast<std::size_t>(row * 2 * p.key_dim + a)] = 0;
  });
  fails("split", [](Problem& p) {  // long calls forget the initial state
    if (const auto state = p.fields.find("initial_state.S"); state != p.fields.end() && p.tokens > 256)
      std::fill(state->second.data.begin(), state->second.data.end(), 0.0);
  });
}

// Products of whole matrices round what lies between them: their bound is not that of one sum of exact terms.
// The kernel, asked about another problem than the one given.
Kernel misled(Kernel kernel, std::function<void(Problem&)> change) {
  kernel.run = [run = kernel.run, change](Problem problem) {
    change(problem);
    return run(problem);
  };
  return kernel;
}

// A block of 1024 tokens faded by its left half where it is to be by its right.
TEST(Battery, FailsAKernelThatConfusesTheFadesOfLargeBlocks) {
  for (const char* name : {"cpu.mamba2.chunk64.fp32", "cpu.log_linear_gated_delta.chunk64.bf16"}) {
    const Kernel wrong = changed(kernel_named(name), [](const Problem& p, Tensors& outputs) {
      const Tensor* g = p.field("g");
      if (!g || p.tokens <= 1024 || p.heads != 1) return;
      const auto closed = [&](Index first, Index last) {
        return std::any_of(g->data.begin() + first, g->data.begin() + last,
                           [](double x) { return x < -100; });
      };
      Tensor& o = outputs["o"];
      if (closed(0, 512) && !closed(512, 1024))
        std::fill(o.data.begin() + 1024 * p.value_dim, o.data.end(), 0.0);
    });
    EXPECT_EQ(outcome_of(kernel_named(name), "paths").verdict, Verdict::pass) << name;
    EXPECT_EQ(outcome_of(wrong, "paths").verdict, Verdict::fail) << name;
  }
}

TEST(Battery, FailsAKernelThatKeepsTheBoundariesOfAnEarlierCallOfTheShape) {
  auto kept = std::make_shared<std::map<std::pair<Index, std::size_t>, std::vector<Index>>>();
  const Kernel wrong = misled(kernel_named("cpu.linear.chunk16.fp32"), [kept](Problem& p) {
    p.cu_seqlens = kept->try_emplace({p.tokens, p.cu_seqlens.size()}, p.cu_seqlens).first->second;
  });
  EXPECT_EQ(outcome_of(wrong, "packing").verdict, Verdict::fail);
}

TEST(Battery, FailsAKernelThatForgetsASmallEpsilon) {
  const Kernel wrong = misled(kernel_named("cpu.linear.chunk16.fp32"), [](Problem& p) {
    if (p.options.epsilon < Rational(1) / 10) p.options.epsilon = 0;
  });
  EXPECT_EQ(outcome_of(wrong, "value").verdict, Verdict::fail);
}

TEST(Battery, PassesADirectFormOfRoundedMatrices) {
  for (const char* name :
       {"cpu.linear.chunk64.bf16", "cpu.hla2.chunk64.direct.bf16", "cpu.mamba2.chunk64.bf16"}) {
    Kernel kernel = kernel_named(name);
    kernel.how = {Form::direct, 0, kernel.how.algebra}, kernel.form = "direct", kernel.limits = "t=0..64";
    const CheckOutcome outcome = outcome_of(kernel, "value");
    EXPECT_EQ(outcome.verdict, Verdict::pass) << name << ": " << outcome.reason;
  }
}

// Linear attention with a backward written out, independent of the tape: o_t = scale sum_{s <= t} (q_t k_s) v_s.
Kernel linear_with_backward(const std::string& fault = "") {
  Kernel kernel;
  kernel.name = "linear.backward", kernel.op = "linear", kernel.variant = "masked", kernel.form = "direct";
  kernel.features = "grouped backward";
  kernel.run = [fault](const Problem& p) {
    KernelResult result;
    Arithmetic<double> exact;
    result.outputs = run<double>(operator_named("linear", "masked"), p, {}, exact);
    const Tensor* cotangent = p.field("do");
    if (!cotangent) return result;
    for (const auto& [name, shape] : gradient_shapes(p))
      result.outputs[name] = {shape,
                              std::vector<double>(static_cast<std::size_t>(element_count(shape)), 0.0)};
    const double scale = p.options.scale ? nearest_double(*p.options.scale) : 1;
    for (Index b = 0; b < p.batch; ++b)
      for (Index h = 0; h < p.heads; ++h) {
        const auto row = [&](Tensor& tensor, Index t) {
          const Index heads = tensor.shape[2];
          return tensor.data.data() + ((b * p.tokens + t) * heads + h / (p.heads / heads)) * tensor.shape[3];
        };
        Problem fields = p;
        const auto in = [&](const char* name, Index t) { return row(fields.fields.at(name), t); };
        const auto out = [&](const char* name, Index t) { return row(result.outputs.at(name), t); };
        for (Index t = 0; t < p.tokens; ++t)
          for (Index s = 0; s <= t; ++s) {
            double score = 0, read = 0;
            for (Index a = 0; a < p.key_dim; ++a) score += scale * in("q", t)[a] * in("k", s)[a];
            for (Index c = 0; c < p.value_dim; ++c) read += scale * in("do", t)[c] * in("v", s)[c];
            for (Index a = 0; a < p.key_dim; ++a) {
              if (fault != "strict mask" || s < t) out("dq", t)[a] += read * in("k", s)[a];
              out("dk", fault == "mask of dk transposed" ? t : s)[a] += read * in("q", t)[a];
            }
            const Index alone = fault == "one chunk alone" ? 16 : fault == "one tile alone" ? 64 : p.tokens;
            for (Index c = 0; c < p.value_dim; ++c)
              if (s / alone == t / alone) out("dv", s)[c] += score * in("do", t)[c];
          }
      }
    return result;
  };
  return kernel;
}

TEST(Gradient, PassesABackwardWrittenOutAndFailsItsFaults) {
  const CheckOutcome right = outcome_of(linear_with_backward(), "gradient");
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_EQ(right.undecided, 0);
  for (const char* fault : {"strict mask", "mask of dk transposed", "one chunk alone", "one tile alone"})
    EXPECT_EQ(outcome_of(linear_with_backward(fault), "gradient").verdict, Verdict::fail) << fault;
}

// Takes the signs of one gradient, or of no one.
Kernel without_signs(const Kernel& kernel, const std::string& name) {
  return changed(kernel, [name](const Problem&, Tensors& outputs) {
    if (const auto found = outputs.find(name); found != outputs.end())
      for (double& x : found->second.data) x = std::abs(x);
  });
}

// A gradient that is zero or positive on all inputs of the check would not be seen to be wrong. That a wrong sign is seen
// where the right gradient has one is asked of one kernel. In bf16, whose integers are the smaller ones.
TEST(Gradient, SeesEveryOutputOfEveryOperator) {
  for (const Kernel& kernel : unedited_kernels()) {
    if (!kernel.name.ends_with(".bf16")) continue;
    std::set<std::string> names, negative;
    const Kernel watched = changed(kernel, [&](const Problem& problem, Tensors& outputs) {
      if (!problem.field("do") || problem.field("alpha")) return;  // the kernels take no linear gates
      for (const auto& [name, shape] : gradient_shapes(problem)) {
        names.insert(name);
        if (std::ranges::min(outputs.at(name).data) < 0) negative.insert(name);
      }
    });
    const CheckOutcome right = outcome_of(watched, "gradient");
    EXPECT_EQ(right.verdict, Verdict::pass) << kernel.name << ": " << right.reason;
    const bool refuses = operator_named(kernel.op, kernel.variant).declaration().gates;  // them, in two calls
    EXPECT_EQ(right.undecided, refuses ? 2 : 0) << kernel.name << ": " << right.reason;
    EXPECT_GE(names.size(), 4u) << kernel.name;
    EXPECT_EQ(negative, names) << kernel.name;
    if (kernel.op != "hla2") continue;
    for (const std::string& name : names)
      EXPECT_EQ(outcome_of(without_signs(kernel, name), "gradient").verdict, Verdict::fail) << name;
    const Kernel lacking =
        changed(kernel, [](const Problem&, Tensors& outputs) { outputs.erase("dinitial_state.S"); });
    EXPECT_THAT(outcome_of(lacking, "gradient").reason, HasSubstr("dinitial_state.S is missing"));
  }
}

TEST(Gradient, RaisesNoFalseAlarmWithAnotherSeed) {
  for (const Kernel& kernel : unedited_kernels()) {
    const CheckOutcome outcome = outcome_of(kernel, "gradient", 10);
    EXPECT_EQ(outcome.verdict, Verdict::pass) << kernel.name << ": " << outcome.reason;
  }
}

// Inference asks for o alone.
TEST(Repetition, FailsAKernelThatIsRightOnlyWhereTheFinalStatesAreWanted) {
  const Kernel& right = kernel_named("cpu.mamba2.chunk16.fp32");
  EXPECT_EQ(outcome_of(right, "repetition").verdict, Verdict::pass);
  const Kernel wrong = changed(right, [](const Problem& problem, Tensors& outputs) {
    if (!problem.wants_states) outputs.at("o").data.back() /= 2;
  });
  const CheckOutcome outcome = outcome_of(wrong, "repetition");
  EXPECT_EQ(outcome.verdict, Verdict::fail);
  EXPECT_THAT(outcome.reason, HasSubstr("o without the final states"));
}

// Kernels of the one head dimension that they were tuned for are asked as much as the others.
TEST(Battery, DrawsWhatTheLimitsOfAKernelAdmit) {
  Kernel tuned = kernel_named("cpu.gated_delta.chunk16.fp32");
  tuned.limits = "d=32,64 dv=64";
  tuned = changed(tuned, [](const Problem& problem, Tensors&) {
    EXPECT_THAT(problem.key_dim, testing::AnyOf(32, 64));
    EXPECT_EQ(problem.value_dim, 64);
  });
  for (const BatteryEntry& entry : run_battery(context_of(tuned), "[!w]*")) {
    if (std::string(entry.check->name) == "gradient") continue;
    EXPECT_EQ(entry.outcome.verdict, Verdict::pass) << entry.check->name << ": " << entry.outcome.reason;
    EXPECT_GT(entry.outcome.inputs, 0) << entry.check->name;
  }
}

TEST(Lattice, ReadsEveryColumnOfWideHeads) {
  std::set<Index> seen;
  const Kernel& kernel = kernel_named("cpu.hla2.chunk16.direct.fp32");
  Random random(1, "columns");
  for (int i = 0; i < 20; ++i) {
    Case shape;
    shape.tokens = 20, shape.key_dim = 16, shape.value_dim = 4;
    const auto problem = draw_lattice(context_of(kernel), shape, random);
    ASSERT_TRUE(problem.has_value());
    const Tensor& k = problem->fields.at("k");
    for (std::size_t j = 0; j < k.data.size(); ++j)
      if (k.data[j] != 0) seen.insert(static_cast<Index>(j) % 16);
  }
  EXPECT_EQ(seen.size(), 16u);
}

TEST(Gradient, IsNotAskedOfKernelsWithoutABackward) {
  const CheckOutcome without = outcome_of(kernel_named("cpu.linear.chunk16.fp32"), "gradient");
  EXPECT_EQ(without.verdict, Verdict::not_run);
  EXPECT_THAT(without.reason, HasSubstr("computes no gradients"));
}

TEST(Gradient, SaysAtWhichTokensAGradientIsWrong) {
  const Kernel wrong = changed(linear_with_backward(), [](const Problem& p, Tensors& outputs) {
    if (const auto dk = outputs.find("dk"); dk != outputs.end() && p.batch == 2)
      dk->second.data[static_cast<std::size_t>((7 * p.heads + 1) * p.key_dim)] += 1;
  });
  const CheckOutcome outcome = outcome_of(wrong, "gradient");
  EXPECT_EQ(outcome.verdict, Verdict::fail);
  EXPECT_EQ(outcome.places.outputs, "dk");
  EXPECT_EQ(outcome.places.tokens, "7");
  EXPECT_EQ(outcome.places.heads, "1");
}

// A lattice input has one answer: every form and algebra gives it, in arithmetic of any contract that it is certified for.
TEST(Lattice, GivesOneAnswerInEveryFormOfEveryContract) {
  for (const Kernel& kernel : registered_kernels()) {
    const BatteryContext context = context_of(kernel, 3);
    if (!no_lattice(context).empty()) continue;
    Random random(3, kernel.name);
    Case shape;
    shape.tokens = 21, shape.key_dim = 4, shape.value_dim = 3, shape.heads = 2, shape.seed = 3;
    const auto problem = draw_lattice(context, fitted(context, shape), random);
    ASSERT_TRUE(problem) << kernel.name;
    const Tensors expected = lattice_outputs(context, *problem);
    const auto exact = evaluate_oracle(context.op, *problem, {});
    for (const auto& [name, tensor] : expected)
      for (std::size_t i = 0; i < tensor.data.size(); ++i)
        EXPECT_EQ(tensor.data[i], round_to(name == "o" ? kernel.contract.output : kernel.contract.state,
                                           exact.tensors.at(name).value[i]))
            << kernel.name << ' ' << name;
    Findings findings(kernel);
    if (const auto outputs = call(context, *problem, findings)) findings.exact(*problem, *outputs, expected);
    EXPECT_FALSE(findings.failed()) << kernel.name << ": " << findings.outcome().reason;
  }
}

// Gates summed in the domain of log2 and by a tree, as many kernels do: sums over as many closed gates must not differ.
TEST(Lattice, ClosesSoFewGatesInAChunkThatTheOrderOfTheirSumDoesNotMatter) {
  const BatteryContext context = context_of(kernel_named("cpu.mamba2.chunk16.fp32"));
  Random random(1, "closed gates");
  Case shape;
  shape.tokens = 400, shape.key_dim = 3, shape.value_dim = 2, shape.heads = 2, shape.seed = 1;
  const auto problem = draw_lattice(context, fitted(context, shape), random);
  ASSERT_TRUE(problem);
  const Tensor& g = problem->fields.at("g");
  Index closed = 0;
  for (Index h = 0; h < 2; ++h)
    for (Index t = 0; t < 400; ++t) {
      Index near = 0;
      for (Index s = t; s < std::min<Index>(400, t + 16); ++s)
        near += g.data[static_cast<std::size_t>(2 * s + h)] != 0;
      EXPECT_LE(near, 3);
      closed += g.data[static_cast<std::size_t>(2 * t + h)] != 0;
    }
  EXPECT_GT(closed, 10);
}

TEST(Lattice, RefusesACertificateForWhatTheFormatsCannotHold) {
  const BatteryContext context = context_of(kernel_named("cpu.linear.chunk16.bf16"));
  Random random(1, "lattice");
  Case shape;
  shape.tokens = 40, shape.key_dim = 4, shape.value_dim = 3, shape.seed = 1;
  auto problem = draw_lattice(context, fitted(context, shape), random);
  ASSERT_TRUE(problem);
  EXPECT_TRUE(is_certified(context, *problem));
  for (double& x : problem->fields.at("k").data) x *= 300;
  EXPECT_FALSE(is_certified(context, *problem));
}

// Columns of zeros are left out of the evaluation: of q, k and v, and of states of every kind.
TEST(Lattice, HasTheOutputsOfAnEvaluationOfEveryColumn) {
  for (const char* name : {"cpu.linear.chunk16.fp32", "cpu.hla2.chunk16.subtract.bf16",
                           "cpu.hla3.chunk16.fp32", "cpu.log_linear_gated_delta.chunk16.bf16"}) {
    const BatteryContext context = context_of(kernel_named(name));
    Random random(1, "columns");
    Case shape;
    shape.tokens = 12, shape.key_dim = 33, shape.value_dim = 40, shape.heads = 2, shape.seed = 1;
    const auto whole = draw_lattice(context, fitted(context, shape), random, LatticeCut{5});
    ASSERT_TRUE(whole) << name;
    const Tensors states = lattice_outputs(context, token_range(*whole, 0, 5));
    Problem rest = continued_from(token_range(*whole, 5, 12), states, context.declaration(), {5});
    EXPECT_TRUE(is_certified(context, rest)) << name;
    Arithmetic<double> exact;
    const Tensors all = run<double>(context.op, rest, {Form::stream, 0, context.kernel.how.algebra}, exact);
    const Tensors few = lattice_outputs(context, rest);
    ASSERT_EQ(few.size(), all.size());
    for (const auto& [output, tensor] : all) {
      EXPECT_EQ(few.at(output).shape, tensor.shape) << name << ' ' << output;
      EXPECT_EQ(few.at(output).data, tensor.data) << name << ' ' << output;
    }
    rest.fields.at("v").data.back() = 0x1p40;
    EXPECT_FALSE(is_certified(context, rest)) << name << ": the last column was not looked at";
  }
}

TEST(Lattice, IsCertifiedOfANegativeScaleAsOfItsSize) {
  const BatteryContext context = context_of(kernel_named("cpu.hla2.chunk16.subtract.fp32"));
  Random random(1, "scale");
  Case shape;
  shape.tokens = 20, shape.key_dim = 4, shape.value_dim = 3, shape.seed = 1;
  auto problem = draw_lattice(context, fitted(context, shape), random);
  ASSERT_TRUE(problem);
  for (const int scale : {-2, 2}) {
    problem->options.scale = Rational(scale);
    EXPECT_TRUE(is_certified(context, *problem)) << scale;
    problem->options.scale = Rational(scale * 4096);
    EXPECT_FALSE(is_certified(context, *problem)) << scale;
  }
}

// What a kernel does at sizes that meet: a width for which it has code of its own, or many tokens, and a head.
TEST(Battery, FailsAFaultAtSizesThatMustMeet) {
  struct Fault {
    const char* words;
    std::function<bool(const Problem& p, Index token, Index head)> there;
  };
  const auto of_width = [](Index width) {
    return [=](const Problem& p, Index token, Index) {
      return p.key_dim == width && p.value_dim == width && token >= 16;
    };
  };
  const auto from_a_state = [](const Problem& p, Index token, Index) {
    return p.key_dim == 128 && p.value_dim == 128 && p.field("initial_state.S") && token == 0;
  };
  for (const Fault& fault :
       {Fault{"32", of_width(32)}, Fault{"64", of_width(64)}, Fault{"128", of_width(128)},
        Fault{"256", of_width(256)}, Fault{"128 from a state", from_a_state},
        Fault{"head 1 after 320 tokens",
              [](const Problem&, Index token, Index head) { return token >= 320 && head > 0; }},
        Fault{"negative scale",
              [](const Problem&p, Index, Index) { return p.options.scale && *p.options.scale < 0; }}}) {
    const Kernel wrong =
        changed(kernel_named("cpu.linear.chunk16.fp32"), [&](const Problem& p, Tensors& outputs) {
          std::vector<double>& o = outputs.at("o").data;
          for (std::size_t i = 0; i < o.size(); ++i) {
            const Index row = static_cast<Index>(i) / p.value_dim;
            if (fault.there(p, row / p.heads % p.tokens, row % p.heads)) o[i] += 1;
          }
        });
    EXPECT_TRUE(outcome_of(wrong, "shapes").verdict == Verdict::fail ||
                outcome_of(wrong, "lattice").verdict == Verdict::fail)
        << fault.words;
  }
}

TEST(Layout, PackingThenCuttingGivesTheSequencesBack) {
  const BatteryContext context = context_of(kernel_named("cpu.log_linear_mamba2.chunk16.fp32"));
  std::vector<Problem> sequences;
  for (const Index tokens : {3, 0, 5}) {
    Case shape;
    shape.tokens = tokens, shape.key_dim = 2, shape.value_dim = 3, shape.heads = 2,
    shape.seed = static_cast<std::uint64_t>(tokens);
    sequences.push_back(drawn(context, shape));
  }
  const Problem all = packed(sequences, context.declaration());
  EXPECT_EQ(all.cu_seqlens, (std::vector<Index>{0, 3, 3, 8}));
  for (const char* name : {"q", "v", "g"})
    EXPECT_EQ(token_range(all.fields.at(name), 3, 8).data, sequences[2].fields.at(name).data) << name;
  for (Index s = 0; s < 3; ++s) {
    const Problem alone = sequence_alone(all, s);
    EXPECT_EQ(alone.tokens, sequences[static_cast<std::size_t>(s)].tokens);
    EXPECT_TRUE(alone.cu_seqlens.empty());
    for (const char* name : {"q", "v", "g"})
      EXPECT_EQ(alone.fields.at(name).data, sequences[static_cast<std::size_t>(s)].fields.at(name).data)
          << name;
  }
}

TEST(Layout, RearrangingTwiceGivesTheProblemBack) {
  const BatteryContext context = context_of(kernel_named("cpu.hla2.chunk16.direct.fp32"));
  Case shape;
  shape.tokens = 4, shape.key_dim = 2, shape.value_dim = 3, shape.heads = 3, shape.batch = 2, shape.seed = 4;
  const Problem problem = drawn(context, shape);
  const Problem back = rearranged(rearranged(problem, {1, 0}, {2, 0, 1}), {1, 0}, {1, 2, 0});
  for (const auto& [name, tensor] : problem.fields) EXPECT_EQ(tensor.data, back.fields.at(name).data) << name;
}

}  // namespace
}  // namespace attest
