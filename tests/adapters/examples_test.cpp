// The examples that users start from are right, and the judge sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gpu_checks/adapters/sha256.hpp"
#include "tests/adapters/plugin_path.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

// The first Python that has NumPy: Debian's own may not be the first one found.
std::string python_with_numpy() {
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (std::system((std::string(python) + " -c 'import numpy' 2>/dev/null").c_str()) == 0) return python;
  return "no-python3-with-numpy";
}

TEST(Examples, InCPassesWithDecayHeadsAndBatches) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "check --plugin " + plugin("hla2_stream") +
                                                " --seed 1 --shape T=64,d=16,dv=8,B=2,H=3 --shape "
                                                "T=33,d=5,dv=7,decay=1,scale=1/2 --shape T=1,d=1,dv=1");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("PASS       example.hla2.stream"));
}

TEST(Examples, InNumPyPasses) {
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(folder, "check --process '" + python_with_numpy() +
                                                " gpu_checks/adapters/examples/numpy_hla2.py' --seed 1 "
                                                "--shape T=48,d=8,dv=4,B=2,H=2 --shape T=1,d=1,dv=1");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("PASS       numpy_stream"));
  EXPECT_THAT(run.out, HasSubstr("PASS       numpy_masked"));
}

TEST(Examples, InNumPyWithGradientsPassTheWholeBattery) {
  const TemporaryFolder folder;
  const ProgramRun run =
      run_attest(folder, "check --process '" + python_with_numpy() +
                             " gpu_checks/adapters/examples/numpy_linear_backward.py' --battery --seed 1");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("gradient +bitwise +PASS"));
}

TEST(Cotangents, GoThroughTheDoorOfPlugins) {
  const TemporaryFolder folder;
  const auto judge = [&](const std::string& kernel) {
    return run_attest(folder,
                      "check --plugin " + plugin("mamba2_backward") + ":" + kernel + " --battery --seed 1");
  };
  const ProgramRun right = judge("right");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_THAT(right.out, testing::ContainsRegex("gradient +bitwise +PASS"));
  for (const char* wrong : {"shifted", "silent"}) {
    const ProgramRun run = judge(wrong);
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    EXPECT_THAT(run.out, testing::ContainsRegex("gradient +bitwise +FAIL")) << run.out;
  }
}

// The packages may be there or not: a module of that name that cannot be imported hides them.
TEST(Examples, AreNotRunWithoutTheirPackages) {
  const TemporaryFolder folder;
  for (const std::string module : {"torch", "jax"})
    std::ofstream(folder / (module + ".py"))
        << "raise ModuleNotFoundError(\"No module named '" + module + "'\", name='" + module + "')\n";
  for (const std::string example :
       {"torch_attention.py", "fla_operators.py", "lightning_operators.py", "opengdn_operators.py",
        "scan_lite_operators.py", "jax_linear_attention.py"}) {
    const ProgramRun run = run_attest(folder, "check --process 'PYTHONPATH=" + folder.path().string() + " " +
                                                  python_with_numpy() + " gpu_checks/adapters/examples/" +
                                                  example + "' --seed 1 --shape T=16,d=32,dv=32");
    EXPECT_EQ(run.exit_code, 77) << run.out << run.err;
    EXPECT_THAT(run.out, testing::ContainsRegex("needs the module (torch|jax), which is not installed"));
    EXPECT_THAT(run.out, testing::Not(HasSubstr("FAIL ")));
  }
}

// What fails inside a kernel for another reason is its fault.
TEST(Examples, ThatRaiseFail) {
  const TemporaryFolder folder;
  std::ofstream(folder / "raises.py")
      << "from attest_adapter import kernel, serve\n"
         "@kernel(op='linear', form='direct', contract='input=fp32 output=fp32')\n"
         "def raises(q, k, v, scale=1.0):\n    raise ImportError('half built')\n"
         "serve()\n";
  const ProgramRun run =
      run_attest(folder, "check --process 'PYTHONPATH=gpu_checks/adapters " + python_with_numpy() + " " +
                             (folder / "raises.py").string() + "' --seed 1 --shape T=4,d=2,dv=2");
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("ImportError: half built"));
}

TEST(Examples, InPythonAreNamedInRecordsByTheSha256OfTheirScript) {
  const TemporaryFolder folder;
  const std::string script = "gpu_checks/adapters/examples/numpy_hla2.py";
  const ProgramRun run =
      run_attest(folder, "check --process '" + python_with_numpy() + " " + script +
                             "' --seed 1 --shape T=4,d=2,dv=2 --output " + (folder / "out").string());
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(text_of(folder / "out" / "records.jsonl"), HasSubstr(sha256(text_of(script))));
}

TEST(Examples, OfFlashinferBenchAreImportedAndJudged) {
  const TemporaryFolder folder;
  const std::string files = "tests/adapters/flashinfer/",
                    tool = python_with_numpy() + " gpu_checks/adapters/flashinfer_solution.py ";
  const std::string definition =
      " --definition " + files +
      "definition.json --field q=query --field k=key --field v=value --field o=out --field scale=softening";
  const std::string shapes = (folder / "shapes").string();
  ASSERT_EQ(
      std::system(
          (tool + "shapes --workload " + files + "workloads.jsonl" + definition + " >" + shapes).c_str()),
      0);
  EXPECT_EQ(text_of(shapes), "--shape T=17,d=8,dv=8,H=2,B=1\n--shape T=64,d=8,dv=4,H=2,B=1\n");
  const auto judge = [&](const std::string& solution, const std::string& more) {
    return run_attest(folder, "check --process \"" + tool +
                                  "serve --op linear --form 'chunk c=1048576' --solution " + files +
                                  solution + definition + "\" --seed 1 --whole $(cat " + shapes + ")" + more);
  };
  const ProgramRun right = judge("right.json", " --shape T=9,d=8,dv=1,H=2,scale=1/2");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("PASS       right-numpy"));
  const ProgramRun wrong = judge("wrong.json", "");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out, HasSubstr("FAIL       wrong-numpy"));
  const ProgramRun other = judge("right.json --field g=key", "");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--field k=key: 'key' is g already"));
  const std::string half = (folder / "half.json").string();
  std::ofstream(half) << text_of(files + "right.json").substr(0, 300);
  const ProgramRun damaged = judge("right.json --solution " + half, "");
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.err, HasSubstr(half + ": "));
  EXPECT_THAT(damaged.err, HasSubstr("expected a JSON file of flashinfer-bench"));
  EXPECT_EQ(std::count(damaged.err.begin(), damaged.err.end(), '\n'), 1) << damaged.err;
}

TEST(Examples, InCudaIsBuiltAndRunsWhereThereIsAGpu) {
  if (!std::filesystem::exists(plugin("linear_cuda"))) GTEST_SKIP() << "built without the CUDA Toolkit";
  const TemporaryFolder folder;
  const ProgramRun run = run_attest(
      folder, "check --plugin " + plugin("linear_cuda") + " --seed 1 --shape T=64,d=32,dv=32,B=2,H=3");
  if (std::filesystem::exists("/dev/nvidia0")) {
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_THAT(run.out, HasSubstr("PASS"));
  } else {
    EXPECT_EQ(run.exit_code, 77) << run.out << run.err;
    EXPECT_THAT(run.out, HasSubstr("no CUDA device is here"));
  }
}

TEST(Examples, OfPluginsFitOnAPage) {
  int looked_at = 0;
  for (const auto& entry : std::filesystem::directory_iterator("gpu_checks/adapters/examples")) {
    if (entry.path().extension() == ".py") continue;
    std::ifstream file(entry.path());
    EXPECT_LE(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 60) << entry.path();
    ++looked_at;
  }
  EXPECT_EQ(looked_at, 2);
}

TEST(Sha256, OfTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace attest
