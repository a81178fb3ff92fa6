#include "gpu_checks/adapters/cuda_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace attest {

CudaDriver* CudaDriver::get() {
  static CudaDriver driver;
  static const bool there = driver.load();
  return there ? &driver : nullptr;
}

bool CudaDriver::load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return false;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  int (*initialise)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*make_stream)(void**, unsigned) = nullptr;
  if (!find(initialise, "cuInit") || !find(device_get, "cuDeviceGet") ||
      !find(retain, "cuDevicePrimaryCtxRetain") || !find(set_current, "cuCtxSetCurrent") ||
      !find(make_stream, "cuStreamCreate") || !find(context_synchronize_, "cuCtxSynchronize") ||
      !find(allocate_, "cuMemAlloc_v2") || !find(free_, "cuMemFree_v2") ||
      !find(copy_in_, "cuMemcpyHtoD_v2") || !find(copy_out_, "cuMemcpyDtoH_v2") ||
      !find(fill_, "cuMemsetD8_v2") || !find(error_name_, "cuGetErrorName"))
    return false;
  int device = 0;
  void* context = nullptr;
  constexpr unsigned beside_the_default_stream = 1;
  return initialise(0) == 0 && device_get(&device, 0) == 0 && retain(&context, device) == 0 &&
         set_current(context) == 0 && make_stream(&stream_, beside_the_default_stream) == 0;
}

std::string CudaDriver::error() const {
  const char* name = nullptr;
  if (last_ == 0) return "too little memory";
  return error_name_(last_, &name) == 0 && name ? fmt::format("{} ({})", name, last_)
                                                : fmt::format("error {}", last_);
}

CudaMemory::CudaMemory(CudaDriver& cuda, std::size_t bytes) : cuda_(cuda), bytes_(bytes) {
  if (!cuda.good(cuda.allocate_(&at_, bytes))) at_ = 0;
}
CudaMemory::~CudaMemory() {
  if (at_ != 0) cuda_.free_(at_);
}

}  // namespace attest
