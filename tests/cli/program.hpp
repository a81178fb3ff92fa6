// Runs the program under test (ATTEST_PROGRAM) and writes the safetensors files that it reads.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "reference/tensor/problem.hpp"
#include "reference/tensor/safetensors.hpp"
#include "tests/tensor/temporary_folder.hpp"

namespace attest {

struct ProgramRun {
  int exit_code = -1;
  std::string out, err;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Arguments as a shell line; paths of a TemporaryFolder hold no character that a shell would change.
inline ProgramRun run_attest(const TemporaryFolder& folder, const std::string& arguments) {
  const char* program = std::getenv("ATTEST_PROGRAM");
  if (!program) throw std::runtime_error("ATTEST_PROGRAM is not set");
  const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
  const int status = std::system((std::string(program) + " " + arguments + " >" + out + " 2>" + err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(out), text_of(err)};
}

inline void write_fields(const std::filesystem::path& path, const Tensors& fields) {
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : fields) {
    if (name == "cu_seqlens" || name == "initial_state.position") {
      const std::vector<std::int64_t> whole(tensor.data.begin(), tensor.data.end());
      writer.add(name, tensor.shape, std::span<const std::int64_t>(whole));
    } else {
      writer.add(name, tensor.shape, tensor.data);
    }
  }
  writer.write(path);
}

}  // namespace attest
