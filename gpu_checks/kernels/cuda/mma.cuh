// The products of wgmma.cuh out of mma.sync m16n8k16, sm_80 on: the same names, operands and registers. Each warp computes
// its 16 of a warpgroup's 64 rows; operands come from shared memory by ldmatrix. Nothing is asynchronous: a product is done,
// and its operands are read, when multiply returns.
#pragma once
#include "gpu_checks/kernels/cuda/tile.cuh"

namespace attest::cuda {

// Sixteen columns or rows of a tile, which are the inner dimension.
struct Operand {
  uint32_t tile;
  int step, subtile;  // bytes of a subtile
};
__device__ inline Operand along_columns(uint32_t tile, int row, int step, int subtile = subtile_bytes) {
  return {tile + row * 128, step, subtile};
}
__device__ inline Operand along_rows(uint32_t tile, int column, int step, int subtile = subtile_bytes) {
  return {tile + column / 64 * subtile, step, subtile};
}
__device__ inline void products_begin() {}
__device__ inline void products_commit() {}
template <int pending>
__device__ inline void products_wait() {}
template <typename... Registers>
__device__ inline void pin(const Registers&...) {}
__device__ inline void publish_stores() {}

// Sixteen rows and columns of a tile as four 8x8 matrices; their order: by rows first, or by columns first.
template <bool rows_first, bool transposed>
__device__ inline void load_matrices(uint32_t (&matrices)[4], uint32_t tile, int rows, int columns,
                                     int subtile) {
  const int lane = threadIdx.x % 32, up = lane / 8 % 2 * 8, left = lane / 16 * 8;
  const int own = rows_first ? tile_offset(up + lane % 8, left) : tile_offset(left + lane % 8, up);
  // Sixteen columns further is two pieces further, in a bit that the swizzle has not yet changed.
  const uint32_t address = tile + (own ^ columns % 4 * 32) + columns / 4 * subtile + rows * 16 * 128;
  if constexpr (transposed)
    load_transposed(matrices, address);
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
}

// d (16 rows, 8 columns) += A B
template <typename T>
__device__ inline void multiply_add(float* d, const uint32_t (&a)[4], uint32_t low, uint32_t high) {
  if constexpr (Pair<T>::half)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}

// Columns of d from 16 `first` on.
template <typename T, int n, int transpose_b>
__device__ inline void multiply(float (&d)[n / 2], const uint32_t (&a)[4], Operand b, bool accumulate,
                                int first = 0) {
#pragma unroll
  for (int m = 0; m < n / 16; ++m) {
    if (m < first) continue;
    uint32_t right[4];
    if constexpr (transpose_b)
      load_matrices<true, true>(right, b.tile, b.step, m, b.subtile);
    else
      load_matrices<false, false>(right, b.tile, m, b.step, b.subtile);
    if (!accumulate)
#pragma unroll
      for (int i = 0; i < 8; ++i) d[8 * m + i] = 0;
    multiply_add<T>(d + 8 * m, a, right[0], right[1]);
    multiply_add<T>(d + 8 * m + 4, a, right[2], right[3]);
  }
}
template <typename T, int n, int transpose_a, int transpose_b>
__device__ inline void multiply(float (&d)[n / 2], Operand a, Operand b, bool accumulate) {
  const int warp = threadIdx.x / 32 % 4;
  uint32_t left[4];
  if constexpr (transpose_a)
    load_matrices<false, true>(left, a.tile, a.step, warp, a.subtile);
  else
    load_matrices<true, false>(left, a.tile, warp, a.step, a.subtile);
  multiply<T, n, transpose_b>(d, left, b, accumulate);
}

}  // namespace attest::cuda
