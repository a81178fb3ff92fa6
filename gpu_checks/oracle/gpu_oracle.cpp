#include "gpu_checks/oracle/gpu_oracle.hpp"

namespace attest {

#if ATTEST_HAVE_CUDA
const CertifiedEngine* cuda_engine(std::string& why);
const CertifiedEngine* gpu_engine(std::string& why) { return cuda_engine(why); }
#else
const CertifiedEngine* gpu_engine(std::string& why) {
  why = "built without the CUDA Toolkit";
  return nullptr;
}
#endif

}  // namespace attest
