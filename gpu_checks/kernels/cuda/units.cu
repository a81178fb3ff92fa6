// Which matrix units a call can use: those of the device, and of the code that this library has for it.
#include <cmath>

#include "gpu_checks/kernels/cuda/launch.cuh"

namespace attest::cuda {
namespace {

// Has shared memory in code for sm_90a alone, so that its attributes tell which code is loaded: a library may be built for
// other architectures, and then the device compiles their PTX, in which there is no wgmma.
__global__ void hopper_code(int* out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ int here[32];
  here[threadIdx.x] = *out;
  __syncwarp();
  *out = here[31 - threadIdx.x];
#endif
}

}  // namespace

MatrixUnits matrix_units() {
  int device = 0, major = 0;
  cudaFuncAttributes code{};
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaFuncGetAttributes(&code, hopper_code) == cudaSuccess;
  if (!known) cudaGetLastError();
  if (!known || major < 8) return MatrixUnits::none;
  return code.sharedSizeBytes > 0 ? MatrixUnits::wgmma : MatrixUnits::mma;
}

bool matrix_units_support(const Context& context, const Lin& lin) {
  const Type type = lin.y.type;
  if (context.units == MatrixUnits::none || lin.key_dim % 8 != 0) return false;
  if (lin.value_dim % 8 != 0 && !lin.of_ones) return false;
  if (!built_for(type, lin.tile_keys) || !built_for(type, lin.tile_values)) return false;
  if (!take_whole_rows({&lin.y, &lin.z}, type)) return false;
  if (!lin.x.data) return true;
  if (!std::isfinite(1 / lin.y_scale) || !takes_whole_rows(lin.x, type)) return false;
  return lin.o.type == Type::f32 || takes_whole_rows(lin.o, type);
}

}  // namespace attest::cuda
