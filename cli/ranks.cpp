// What does not need MPI.
#include "cli/ranks.hpp"

#include <cstdlib>

namespace attest {
namespace {

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

}  // namespace

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return number_of(name, 0);
  return 0;
}

bool launched_by_mpirun() {
  const bool by_srun = std::getenv("PMIX_RANK") && !std::getenv("OMPI_COMM_WORLD_SIZE");
  return number_of("OMPI_COMM_WORLD_SIZE", 1) > 1 || number_of("PMI_SIZE", 1) > 1 ||
         (by_srun && number_of("SLURM_NTASKS", 1) > 1);
}

}  // namespace attest
