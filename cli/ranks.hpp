// The processes of one `mpirun attest fuzz`, or this one alone. Rank 0 decides everything and does tasks too; the others do
// what it hands them. A task and a reply are texts; an empty reply: it was not done.
//   hand_out  each rank does one task at a time and has the next at hand, whoever is free gets more
//   agree     before the work: all ranks go on, or none, and rank 0 says why
// Where attest was built without MPI (cli/ranks_alone.cpp), mpirun is refused.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attest {

class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Of those on one machine each has a GPU of its own, as far as there are: CUDA_VISIBLE_DEVICES.
  void take_own_gpu() const;
  // What rank 0 says.
  std::string told(const std::string& text) const;
  // Empty: all ranks go on. Else, at rank 0, what is wrong and where: `facts` have to be the same everywhere, `wrong` is what
  // this rank has to say against it. The others get a text that nobody reads.
  std::string agree(const std::string& facts, const std::string& wrong) const;

  using Work = std::function<std::string(const std::string&)>;
  // Rank 0: until they are finished. One call of an errand's functions at a time.
  struct Errand {
    std::size_t ticket = 0;
    std::string task;
    bool takes_seconds = false;  // none is kept at hand behind it
  };
  struct Errands {
    std::function<std::optional<Errand>()> next;  // none: none now
    std::function<void(std::size_t ticket, const std::string& reply)> answered;
    std::function<bool()> finished;
  };
  void hand_out(const Errands& errands, const Work& own) const;
  // The others: until rank 0 has no more to do.
  void serve(const Work& work) const;
  void dismiss();

 private:
  int rank_ = 0, size_ = 1;
  bool begun_ = false, dismissed_ = false;
};

// The rank that mpirun gave this process (Open MPI, PMIx, PMI), before or without MPI; 0 where it gave none.
int launched_rank();
bool launched_by_mpirun();  // with other ranks

}  // namespace attest
