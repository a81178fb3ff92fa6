// The few functions of the CUDA driver that a worker needs, found at run time: attest itself is built and runs
// without CUDA. The context is the primary one, which the CUDA runtime of a plug-in uses too.
#pragma once
#include <cstddef>
#include <string>

namespace attest {

class CudaDriver {
 public:
  static CudaDriver* get();  // nullptr: no driver or no device
  void* stream() const { return stream_; }
  bool synchronize() { return good(context_synchronize_()); }
  std::string error() const;  // of the last call that failed: "CUDA_ERROR_ILLEGAL_ADDRESS (700)"

 private:
  friend class CudaMemory;
  bool load();
  bool good(int result) {
    if (result != 0) last_ = result;
    return result == 0;
  }

  using Pointer = unsigned long long;
  int (*context_synchronize_)() = nullptr;
  int (*allocate_)(Pointer*, std::size_t) = nullptr;
  int (*free_)(Pointer) = nullptr;
  int (*copy_in_)(Pointer, const void*, std::size_t) = nullptr;
  int (*copy_out_)(void*, Pointer, std::size_t) = nullptr;
  int (*fill_)(Pointer, unsigned char, std::size_t) = nullptr;
  int (*error_name_)(int, const char**) = nullptr;
  void* stream_ = nullptr;
  int last_ = 0;
};

// Memory of the device, 256-byte aligned; data() is nullptr where there was none.
class CudaMemory {
 public:
  CudaMemory(CudaDriver& cuda, std::size_t bytes);
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();
  std::byte* data() const { return reinterpret_cast<std::byte*>(at_); }
  bool copy_in(const void* from) { return at_ != 0 && cuda_.good(cuda_.copy_in_(at_, from, bytes_)); }
  bool copy_out(void* to) const { return copy_out(to, 0, bytes_); }
  bool copy_out(void* to, std::size_t from, std::size_t bytes) const {
    return at_ != 0 && cuda_.good(cuda_.copy_out_(to, at_ + from, bytes));
  }
  bool fill(std::size_t from, std::size_t bytes, std::byte value) {
    return bytes == 0 ||
           (at_ != 0 && cuda_.good(cuda_.fill_(at_ + from, static_cast<unsigned char>(value), bytes)));
  }

 private:
  CudaDriver& cuda_;
  std::size_t bytes_;
  CudaDriver::Pointer at_ = 0;
};

}  // namespace attest
