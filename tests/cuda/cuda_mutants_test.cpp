// The list of CUDA mutants against the kernels that hold them; what the battery says of each needs a GPU
// (judge_mutants.sh).
#include "gpu_checks/mutants/cuda/cuda_mutants.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace attest {
namespace {

const std::filesystem::path folder = "gpu_checks/kernels/cuda";

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}
std::string sources() {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) text += text_of(entry.path());
  return text;
}

TEST(CudaMutants, AreManyDistinctAndOfEveryFamilyThatKernelsHaveHere) {
  std::set<std::string> names;
  std::set<cuda::Mutant> values;
  std::map<int, int> families;
  for (const cuda::MutantInfo& info : cuda::mutants) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(values.insert(info.mutant).second) << info.name;
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string(info.unit) + ".cu"))) << info.name;
    if (std::string(info.judge) != "unseen") ++families[info.family];
  }
  const auto judged = std::count_if(cuda::mutants.begin(), cuda::mutants.end(),
                                    [](const auto& info) { return std::string(info.judge) != "unseen"; });
  EXPECT_GE(judged, 30);
  for (const int family : {1, 3, 4, 5, 6, 7, 8, 9, 10, 11}) EXPECT_GE(families[family], 1) << family;
}

TEST(CudaMutants, HaveTheirPlaceInTheKernels) {
  const std::string text = sources();
  const auto placed = [&](const std::string& name) {
    return text.find("is<Mutant::" + name + ">") != std::string::npos;
  };
  for (const cuda::MutantInfo& info : cuda::mutants) EXPECT_TRUE(placed(info.name)) << info.name;
  EXPECT_FALSE(placed("none")) << "control";
}

TEST(CudaMutants, AreNotInALibraryThatIsBuiltWithoutAsking) {
  for (const cuda::MutantInfo& info : cuda::mutants) EXPECT_NE(static_cast<int>(info.mutant), ATTEST_MUTANT);
  EXPECT_TRUE(cuda::is<cuda::Mutant::none>);
}

}  // namespace
}  // namespace attest
