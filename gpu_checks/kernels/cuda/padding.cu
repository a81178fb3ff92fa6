// Copies between tensors of different width: columns (and rows of matrices) that the source does not have become zero.
// Rows of 16 bits a number are copied eight numbers at a time where both sides allow it.
#include <algorithm>

#include "gpu_checks/kernels/cuda/launch.cuh"

namespace attest::cuda {
namespace {

unsigned blocks_for(int64_t elements) {
  return static_cast<unsigned>(std::min<int64_t>((elements + 255) / 256, 1 << 20));
}

// (batch, tokens, heads as they lie in memory, columns)
__global__ void copy_rows(View from, View to, int64_t tokens, int heads, int from_columns, int to_columns,
                          int64_t elements) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * 256) {
    const int c = static_cast<int>(i % to_columns), h = static_cast<int>(i / to_columns % heads);
    const int64_t row = i / to_columns / heads, b = row / tokens, t = row % tokens;
    to.write(b, t, h, c, c < from_columns ? from.read(b, t, h, c) : 0.f);
  }
}

// The same, columns in eights.
__global__ void copy_eights(View from, View to, int64_t tokens, int heads, int from_eights, int to_eights,
                            int64_t eights) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < eights;
       i += static_cast<int64_t>(gridDim.x) * 256) {
    const int c = static_cast<int>(i % to_eights), h = static_cast<int>(i / to_eights % heads);
    const int64_t row = i / to_eights / heads, b = row / tokens, t = row % tokens;
    uint4 eight = make_uint4(0, 0, 0, 0);
    if (c < from_eights)
      eight =
          *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(from.data) + from.at(b, t, h) + 8 * c);
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(to.data) + to.at(b, t, h) + 8 * c) = eight;
  }
}

// (count, rows, columns), contiguous
__global__ void copy_matrices(Moment from, Moment to, int from_rows, int from_columns, int to_rows,
                              int to_columns, int64_t elements) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * 256) {
    const int c = static_cast<int>(i % to_columns), r = static_cast<int>(i / to_columns % to_rows);
    const int64_t matrix = i / to_columns / to_rows;
    const bool inside = r < from_rows && c < from_columns;
    const int64_t at = (matrix * from_rows + r) * from_columns + c;
    store(to.data, i, to.type, inside ? load(from.data, at, from.type) : 0.f);
  }
}

__global__ void write_one(View row) { store(row.data, threadIdx.x, row.type, threadIdx.x == 0 ? 1.f : 0.f); }

}  // namespace

cudaError_t launch_one(const View& row, cudaStream_t stream) {
  write_one<<<1, 8, 0, stream>>>(row);
  return cudaGetLastError();
}

cudaError_t launch_copy_rows(const View& from, const View& to, int64_t batch, int64_t tokens, int heads,
                             int from_columns, int to_columns, cudaStream_t stream) {
  const int64_t elements = batch * tokens * heads * to_columns;
  if (elements == 0) return cudaSuccess;
  View source = from, target = to;
  source.group = target.group = 1;
  if (bytes_of(from.type) == 2 && take_whole_rows({&from, &to}, from.type) && from_columns % 8 == 0 &&
      to_columns % 8 == 0)
    copy_eights<<<blocks_for(elements / 8), 256, 0, stream>>>(source, target, tokens, heads, from_columns / 8,
                                                              to_columns / 8, elements / 8);
  else
    copy_rows<<<blocks_for(elements), 256, 0, stream>>>(source, target, tokens, heads, from_columns,
                                                        to_columns, elements);
  return cudaGetLastError();
}

cudaError_t launch_copy_matrices(const Moment& from, const Moment& to, int64_t count, int from_rows,
                                 int from_columns, int to_rows, int to_columns, cudaStream_t stream) {
  const int64_t elements = count * to_rows * to_columns;
  if (elements == 0) return cudaSuccess;
  copy_matrices<<<blocks_for(elements), 256, 0, stream>>>(from, to, from_rows, from_columns, to_rows,
                                                          to_columns, elements);
  return cudaGetLastError();
}

}  // namespace attest::cuda
