// A file that appears whole or not at all: written under a temporary name in the same folder, flushed to the
// disk, then renamed over the target. A failure at any point is a BadInput and leaves the folder as it was.
// Targets that are no regular files (/dev/stdout, a pipe) cannot be renamed over and are written directly.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "reference/tensor/temporaries.hpp"

namespace attest {

class AtomicFile {
 public:
  // Creates the temporary: construct before a long computation to learn early that the path is not writable.
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // removes the temporary unless committed

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail(const std::string& action, int error);
  void discard() noexcept;

  std::string label_;                // the path as the user gave it
  std::filesystem::path target_;     // symbolic links resolved
  std::filesystem::path temporary_;  // empty when writing directly
  Temporary remembered_;
  int descriptor_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace attest
