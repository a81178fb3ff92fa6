// attest built without MPI: one process.
#include "cli/ranks.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {

Ranks::Ranks() {
  if (launched_by_mpirun())
    throw BadInput(
        "mpirun: this attest was built without MPI and every rank would do the same, expected one "
        "process, or a build with Open MPI (Debian: libopenmpi-dev openmpi-bin)");
}
Ranks::~Ranks() = default;

void Ranks::take_own_gpu() const {}
std::string Ranks::told(const std::string& text) const { return text; }
std::string Ranks::agree(const std::string&, const std::string& wrong) const { return wrong; }
void Ranks::hand_out(const Errands& errands, const Work& own) const {
  while (const auto errand = errands.next()) errands.answered(errand->ticket, own(errand->task));
}
void Ranks::serve(const Work&) const {}
void Ranks::dismiss() {}

}  // namespace attest
