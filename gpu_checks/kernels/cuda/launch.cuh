// Launching the kernels on matrix units: which types and dimensions are built, and one launch.
#pragma once
#include <initializer_list>

#include "gpu_checks/kernels/cuda/common.cuh"

namespace attest::cuda {

// A dimension of the tiles that is built for this type.
inline bool built_for(Type type, int dim) {
#if defined(ATTEST_CUDA_SMALL) && !defined(ATTEST_CUDA_WIDE)
  return type == Type::bf16 && dim == 64;
#elif defined(ATTEST_CUDA_SMALL)
  return type == Type::bf16 && (dim == 64 || dim == 128);
#else
  return (type == Type::bf16 || type == Type::f16) && (dim == 64 || dim == 128);
#endif
}

// Rows that 16-byte copies can take.
inline bool takes_whole_rows(const View& view, Type type) {
  return view.type == type && view.dim == 1 && (view.token | view.head | view.batch) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}
inline bool take_whole_rows(std::initializer_list<const View*> views, Type type) {
  for (const View* view : views)
    if (!takes_whole_rows(*view, type)) return false;
  return true;
}

// action.template operator()<T, dim>() of a type and dimension that are built.
template <typename Action>
cudaError_t with_type_and_dim(Type type, int dim, Action action) {
  if (!built_for(type, dim)) return cudaErrorInvalidValue;
#ifndef ATTEST_CUDA_SMALL
  if (type == Type::f16)
    return dim == 64 ? action.template operator()<__half, 64>() : action.template operator()<__half, 128>();
#endif
#if !defined(ATTEST_CUDA_SMALL) || defined(ATTEST_CUDA_WIDE)
  if (dim == 128) return action.template operator()<__nv_bfloat16, 128>();
#endif
  return action.template operator()<__nv_bfloat16, 64>();
}

// Launches of a stream, none after the first that fails. No blocks: no launch.
class Launches {
 public:
  explicit Launches(cudaStream_t stream) : stream_(stream) {}
  template <typename... Parameters, typename... Arguments>
  Launches& run(void (*kernel)(Parameters...), int64_t blocks, int threads, int bytes,
                Arguments... arguments) {
    if (error != cudaSuccess || blocks == 0) return *this;
    if (bytes > 0) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return *this;
    kernel<<<grid_of(blocks), threads, bytes, stream_>>>(arguments...);
    error = cudaGetLastError();
    return *this;
  }
  cudaError_t error = cudaSuccess;

 private:
  cudaStream_t stream_;
};

}  // namespace attest::cuda
