// A tile in shared memory as the matrix instructions read it, its copies, and the small instructions around them; sm_80 on.
// A tile (64 tokens, D) is D/64 subtiles of 64 rows of 128 bytes, the 16-byte pieces of a row swizzled by row % 8. Read
// along D it is a K-major operand, read along the tokens an MN-major one: the same memory serves both.
#pragma once
#include "gpu_checks/kernels/cuda/common.cuh"

namespace attest::cuda {

constexpr int subtile_bytes = 64 * 128;

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Byte offset of (row, column) in a tile.
__device__ inline int tile_offset(int row, int column) {
  return column / 64 * subtile_bytes + row * 128 + ((column % 64 / 8) ^ (row & 7)) * 16 + column % 8 * 2;
}
// A number that a whole warp shares, as one: what is derived from it stays out of the threads' registers.
__device__ inline int shared_by_warp(int number) { return __shfl_sync(~0u, number, 0); }

template <typename T>
struct Pair;
template <>
struct Pair<__nv_bfloat16> {
  static constexpr bool half = false;
  __device__ static uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ static float2 unpack(uint32_t bits) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
  }
};
template <>
struct Pair<__half> {
  static constexpr bool half = true;
  __device__ static uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  __device__ static float2 unpack(uint32_t bits) {
    return __half22float2(*reinterpret_cast<const __half2*>(&bits));
  }
};

// Four 8x8 matrices, transposed: a 16x16 operand of the matrix instruction out of (inner, outer) memory.
__device__ inline void load_transposed(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}
// Four 8x8 matrices, transposed on the way to the rows whose addresses the lanes give, eight lanes a matrix.
__device__ inline void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
#else
  __syncwarp();  // what other lanes read there, they have
  const uint32_t matrices[4] = {a, b, c, d};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t two;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(two) : "r"(matrices[i]));
    const uint32_t row = __shfl_sync(~0u, address, 8 * i + threadIdx.x % 32 / 4);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(row + threadIdx.x % 4 * 4), "r"(two) : "memory");
  }
#endif
}
__device__ inline void copy_async(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ inline void barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attest::cuda
