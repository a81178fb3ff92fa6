// The library of CUDA kernels as its users meet it, without a GPU: what it announces and what it refuses.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gpu_checks/adapters/attest_kernel.h"
#include "reference/forms/operator.hpp"
#include "reference/tensor/contract.hpp"

namespace attest {
namespace {

using Entry = decltype(&attest_kernels);

class CudaLibrary : public testing::Test {
 protected:
  void SetUp() override {
    const char* program = std::getenv("ATTEST_PROGRAM");
    const auto path =
        std::filesystem::path(program ? program : "build/attest").parent_path() / "libattest_cuda_kernels.so";
    if (!std::filesystem::exists(path))
      GTEST_SKIP() << "not run: " << path << " is not built (no CUDA Toolkit)";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    entry = reinterpret_cast<Entry>(dlsym(library, "attest_kernels"));
    ASSERT_NE(entry, nullptr);
    kernels = entry(ATTEST_ABI, sizeof(attest_kernel), &count);
    ASSERT_NE(kernels, nullptr);
  }
  const attest_kernel& find(const std::string& name) const {
    for (int i = 0; i < count; ++i)
      if (name == kernels[i].name) return kernels[i];
    throw std::runtime_error(name);
  }
  Entry entry = nullptr;
  const attest_kernel* kernels = nullptr;
  int32_t count = 0;
};

// A call of hla2 whose tensors have no data.
struct DatalessCall {
  std::vector<int64_t> shape{1, 100, 2, 64}, strides{100 * 2 * 64, 2 * 64, 64, 1}, k_shape = shape;
  DLTensor q{}, k{}, v{}, o{};
  std::vector<attest_tensor> inputs, outputs;
  std::vector<attest_option> options;
  char message[200] = "";
  attest_call call{};
  DatalessCall() {
    for (DLTensor* tensor : {&q, &k, &v, &o}) {
      tensor->device = {2, 0};
      tensor->ndim = 4;
      tensor->dtype = {4, 16, 1};
      tensor->shape = (tensor == &k ? k_shape : shape).data();
      tensor->strides = strides.data();
    }
    inputs = {{"q", &q}, {"k", &k}, {"v", &v}};
    outputs = {{"o", &o}};
    call.message = message;
    call.message_bytes = sizeof message;
  }
  attest_status bytes_needed(const attest_kernel& kernel, size_t& bytes) {
    call.inputs = inputs.data(), call.n_inputs = static_cast<int32_t>(inputs.size());
    call.outputs = outputs.data(), call.n_outputs = static_cast<int32_t>(outputs.size());
    call.options = options.data(), call.n_options = static_cast<int32_t>(options.size());
    return kernel.workspace(&call, &bytes);
  }
};

TEST_F(CudaLibrary, AnnouncesKernelsThatTheJudgeCanRead) {
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) {
    const attest_kernel& kernel = kernels[i];
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is there twice";
    EXPECT_NO_THROW(parse_contract(kernel.contract)) << kernel.name;
    EXPECT_NE(kernel.workspace, nullptr);
    EXPECT_NE(kernel.run, nullptr);
    EXPECT_STREQ(kernel.device, "cuda");
  }
  EXPECT_TRUE(names.contains("cuda.hla2.masked.bf16"));
  EXPECT_TRUE(names.contains("cuda.log_linear_gated_delta.masked.fp32"));
}

TEST_F(CudaLibrary, RefusesAnotherInterface) {
  int32_t has = 0;
  EXPECT_EQ(entry(ATTEST_ABI + 1, sizeof(attest_kernel), &has), nullptr);
  EXPECT_EQ(has, static_cast<int32_t>(ATTEST_ABI));
  EXPECT_EQ(entry(ATTEST_ABI, sizeof(attest_kernel) - 1, &has), nullptr);
}

TEST_F(CudaLibrary, SaysWhatIsWrongWithACall) {
  const attest_kernel& kernel = find("cuda.hla2.masked.bf16");
  size_t bytes = 0;
  auto refusal = [&](auto change) {
    DatalessCall made;
    change(made);
    return made.bytes_needed(kernel, bytes) == ATTEST_INVALID ? std::string(made.message) : "not refused";
  };
  EXPECT_EQ(refusal([](DatalessCall& c) { c.k_shape[1] = 99; }),
            "k has shape [1, 99, 2, 64], expected [1, 100, *, 64]");
  EXPECT_EQ(refusal([](DatalessCall& c) { c.v.dtype.code = 2; }), "v: not the type that this kernel takes");
  EXPECT_EQ(refusal([](DatalessCall& c) { c.k.device.device_type = 1; }), "k is not on a CUDA device");
  EXPECT_EQ(refusal([](DatalessCall& c) { c.inputs.pop_back(); }), "v is missing");
  EXPECT_EQ(refusal([](DatalessCall& c) { c.outputs.clear(); }), "output o is missing");
  EXPECT_EQ(refusal([](DatalessCall& c) {
              c.options.push_back({"nonsense", "1", 1});
            }),
            "option nonsense is not one of this operator");
}

TEST_F(CudaLibrary, RefusesTooFewLevels) {
  const attest_kernel& kernel = find("cuda.log_linear.masked.bf16");
  std::vector<int64_t> shape{1, 100, 2, 7}, strides{1400, 14, 7, 1};
  DLTensor scales{nullptr, {2, 0}, 4, {2, 32, 1}, shape.data(), strides.data(), 0};
  auto answer = [&](int64_t levels) {
    DatalessCall made;
    shape[3] = levels;
    made.inputs.push_back({"level_scales", &scales});
    size_t bytes = 0;
    return made.bytes_needed(kernel, bytes) == ATTEST_INVALID ? std::string(made.message) : "not refused";
  };
  EXPECT_EQ(answer(7), "level_scales has 7 levels, 100 tokens need 8");
  EXPECT_EQ(answer(8), "not refused");
}

// Control for the refusals: the unchanged call is in order, as far as the device goes.
TEST_F(CudaLibrary, AcceptsACallInOrderOrSaysThatThereIsNoDevice) {
  DatalessCall made;
  size_t bytes = 0;
  const attest_status status = made.bytes_needed(find("cuda.hla2.masked.bf16"), bytes);
  if (status == ATTEST_OK) {
    EXPECT_GT(bytes, size_t{100 * 2 * 64 * 2});
  } else {
    EXPECT_EQ(status, ATTEST_FAILED);
    EXPECT_STREQ(made.message, "CUDA device 0 is not there");
  }
}

}  // namespace
}  // namespace attest
