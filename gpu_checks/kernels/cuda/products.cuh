// Products of tiles on the matrix units of the architecture that is compiled for.
#pragma once
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "gpu_checks/kernels/cuda/wgmma.cuh"
#else
#include "gpu_checks/kernels/cuda/mma.cuh"
#endif

namespace attest::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr MatrixUnits units_here = MatrixUnits::wgmma;
#else
constexpr MatrixUnits units_here = MatrixUnits::mma;
#endif

}  // namespace attest::cuda
