// Bytes as what a shard has left behind: refused, or joined to a whole of which nothing is missing. Records, a ledger, a kill
// matrix, and a hunt, which is shown as well.
#include <unistd.h>

#include <fstream>

#include "fuzz/targets/target.hpp"
#include "gpu_checks/mutants/kill_matrix_json.hpp"
#include "reports/fuzz_page.hpp"
#include "reports/hunt_junit.hpp"
#include "reports/join_shards.hpp"

namespace attest {
namespace {

const std::filesystem::path& shard_path() {
  static const std::filesystem::path path =
      (std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                 : std::filesystem::temp_directory_path()) /
      ("attest-fuzz-shard-" + std::to_string(getpid()));
  return path;
}

void join(const std::filesystem::path& path) {
  accepted([&] { (void)schema_of(path); });
  accepted([&] {
    const Records joined = join_records({path});
    require(!joined.run.shard && joined.end.cases == std::ssize(joined.cases), "a whole that is a part");
  });
  for (const char* list : {"claims", "mutants"})
    accepted([&] {
      const auto joined = join_documents({path}, list);
      require(joined[list].is_array() && !joined.contains("shard"), "a whole that is a part");
      const KillMatrix matrix = read_matrix(joined, "f");
      require(read_matrix(matrix_json(matrix), "f").rows.size() == matrix.rows.size(), "rows are lost");
      (void)matrix_text(matrix);
    });
  accepted([&] { (void)read_hunts(path); });
  accepted([&] {
    const auto joined = join_hunts({path});
    require(!joined.contains("shard"), "a whole that is a part");
    const Hunts hunts = read_hunts(joined, "f");
    require(hunts.reports.size() == joined["kernels"].size(), "kernels are lost");
    (void)render_fuzz_page(hunts), (void)render_hunt_junit(hunts);
  });
}

}  // namespace
}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::ofstream(attest::shard_path(), std::ios::binary) << attest::text_of(bytes, size);
  attest::join(attest::shard_path());
  std::error_code ignored;
  std::filesystem::remove(attest::shard_path(), ignored);
  return 0;
}
