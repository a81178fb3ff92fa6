// Device memory of a scope; failed() where there was none left or a copy did not go through.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

namespace attest::gpu_oracle {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) {
    if (count > 0 && cudaMalloc(&data_, count * sizeof(T)) != cudaSuccess) data_ = nullptr, failed_ = true;
    size_ = count;
  }
  DeviceArray(const T* source, std::size_t count) : DeviceArray(count) {
    if (!failed_ && count > 0)
      failed_ = cudaMemcpyAsync(data_, source, count * sizeof(T), cudaMemcpyHostToDevice,
                                cudaStreamPerThread) != cudaSuccess;
  }
  explicit DeviceArray(const std::vector<T>& source) : DeviceArray(source.data(), source.size()) {}
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  bool read(T* target) const {
    return cudaMemcpyAsync(target, data_, size_ * sizeof(T), cudaMemcpyDeviceToHost, cudaStreamPerThread) ==
           cudaSuccess;
  }
  T* data() const { return data_; }
  bool failed() const { return failed_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  bool failed_ = false;
};

}  // namespace attest::gpu_oracle
