// What a hunt asks and when it learns from the answers, which is the same whatever the number of hands that ask:
//   batch k+1 is drawn when batch k-1 has been learnt from, so that there is something to ask while the last of k are waited for
//   a question that takes seconds (width) holds up no batch but the one `slow_lag` later, before which it is learnt from
//   the failures of a batch are settled after what is ready by then, and before it is learnt from
// Within a batch it is learnt in the order of drawing. A door has a queue for each worker, whose order depends on the inputs
// alone: what a kernel keeps between calls is the same again. One caller at a time.
#pragma once
#include <deque>
#include <list>
#include <map>

#include "fuzz/task.hpp"

namespace attest {

// What the schedule asks of the hunt, in an order that depends on the answers alone, but for the last three.
class HuntSteps {
 public:
  virtual ~HuntSteps() = default;
  virtual std::vector<HuntTask> draw() = 0;  // a batch; none: no more
  // Of the failures that are looked at closely, the task, at the place of the failure.
  virtual std::map<std::size_t, HuntTask> settling(const std::vector<HuntTask>& tasks,
                                                   const std::vector<HuntReply>& replies) = 0;
  virtual void learn(const HuntTask& task, const HuntReply& reply, const HuntReply* settled) = 0;
  virtual void note(const HuntTask& task, const HuntReply& reply) = 0;     // at once, in the order of answers
  virtual std::optional<HuntReply> known(const HuntTask& task) const = 0;  // without asking
  virtual bool over(const HuntTask& task) const = 0;                       // it is begun no more
};

struct HuntSpread {
  int queues = 1;
  bool sorted = false;  // what takes longest first, so that nobody waits for it at the end
  Index slow_lag = 0;   // in batches; 0: no question is slow
};

class HuntSchedule {
 public:
  struct Errand {
    std::size_t ticket;
    HuntTask task;
  };

  HuntSchedule(HuntSteps& steps, const HuntSpread& spread);
  std::optional<Errand> next(std::size_t queue = 0);  // none: none now
  void answered(std::size_t ticket, HuntReply reply);
  bool finished() const;  // no task is out, and none is to come
  void close();           // learns from what was answered when the hunt was over
  // Those that were known too. With each, other queues may have more to do.
  Index replies() const { return replies_; }

 private:
  struct Batch {
    std::vector<HuntTask> tasks;
    std::vector<HuntReply> replies;
    std::map<std::size_t, HuntTask> settling;
    std::map<std::size_t, HuntReply> settled;
    std::size_t open = 0;  // tasks of both kinds without a reply
    Index due = 0;         // slow: before which batch it is learnt from
    bool looked_at = false;
  };
  struct Place {
    Batch* batch = nullptr;
    std::size_t at = 0;
    bool settles = false;
    const HuntTask& task() const { return settles ? batch->settling.at(at) : batch->tasks[at]; }
  };

  void draw();
  void enqueue(std::vector<Place> places);
  void reply_to(const Place& place, HuntReply reply);
  void advance();
  bool look_at(Batch& batch);  // whether everything is answered, failures settled
  void learn(const Batch& batch);

  HuntSteps& steps_;
  const HuntSpread spread_;
  std::list<Batch> batches_, slow_;
  std::vector<std::deque<Place>> ready_;  // by queue
  std::map<std::size_t, Place> out_;      // by ticket
  std::size_t tickets_ = 0;
  Index drawn_ = 0, learnt_ = 0;  // batches
  Index replies_ = 0;
};

}  // namespace attest
