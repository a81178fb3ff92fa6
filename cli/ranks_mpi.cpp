// The processes of an MPI job. Texts of a few kilobytes, point to point, between rank 0 and the others; nothing is collective but
// the start. Rank 0 does tasks on a second thread, while this one looks after the others.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/ranks.hpp"
#include "gpu_checks/adapters/devices.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

enum Tag { task_tag = 1, reply_tag, dismissed_tag, facts_tag, wrong_tag };
constexpr std::size_t ahead = 2;                        // tasks that a rank has, with the one that it does
constexpr auto pause = std::chrono::microseconds(500);  // to look for a message takes some 10

void send(const std::string& text, int to, int tag) {
  MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, to, tag, MPI_COMM_WORLD);
}

struct Message {
  std::string text;
  int from = 0, tag = 0;
};
Message receive(MPI_Status status) {
  int size = 0;
  MPI_Get_count(&status, MPI_CHAR, &size);
  Message message{std::string(static_cast<std::size_t>(size), '\0'), status.MPI_SOURCE, status.MPI_TAG};
  MPI_Recv(message.text.data(), size, MPI_CHAR, message.from, message.tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return message;
}
std::optional<Message> arrived(int from, int tag) {
  int there = 0;
  MPI_Status status;
  MPI_Iprobe(from, tag, MPI_COMM_WORLD, &there, &status);
  return there ? std::optional(receive(status)) : std::nullopt;
}
// Blocking receives of Open MPI keep a core busy, which the tasks need.
Message wait_for(int from, int tag) {
  for (;;) {
    if (auto message = arrived(from, tag)) return *message;
    std::this_thread::sleep_for(pause);
  }
}

std::string host() {
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_Get_processor_name(name, &length);
  return {name, static_cast<std::size_t>(length)};
}

// One hand_out: who has which errand.
class Round {
 public:
  Round(const Ranks::Errands& errands, const Ranks::Work& own, int ranks)
      : errands_(errands), own_(own), held_(static_cast<std::size_t>(ranks)) {}

  void run() {
    std::exception_ptr failed;
    {
      const std::jthread here([&] {
        try {
          do_own();
        } catch (...) {
          failed = std::current_exception();
        }
        finished_ = true;
      });
      try {
        while (!finished_ || outstanding_ > 0) {
          const bool gave = !finished_ && give();
          const bool got = take();
          if (!gave && !got) std::this_thread::sleep_for(pause);
        }
      } catch (...) {
        ended_ = true;
        throw;
      }
    }
    for (Outgoing& one : outgoing_) MPI_Wait(&one.request, MPI_STATUS_IGNORE);
    if (failed) std::rethrow_exception(failed);
  }

 private:
  struct Outgoing {
    std::string task;
    MPI_Request request;
  };
  struct Held {
    std::size_t ticket;
    bool takes_seconds;
  };

  void do_own() {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (ended_ || errands_.finished()) return;
      const auto errand = errands_.next();
      lock.unlock();
      if (!errand) {
        std::this_thread::sleep_for(pause);
        continue;
      }
      const std::string reply = own_(errand->task);
      lock.lock();
      errands_.answered(errand->ticket, reply);
    }
  }
  // One at a time, and a second to have at hand.
  bool give() {
    bool gave = false;
    const std::lock_guard lock(mutex_);
    for (std::size_t held = 0; held < ahead; ++held)
      for (std::size_t rank = 1; rank < held_.size(); ++rank) {
        if (held_[rank].size() != held || (held > 0 && held_[rank].back().takes_seconds)) continue;
        auto errand = errands_.next();
        if (!errand) return gave;
        held_[rank].push_back({errand->ticket, errand->takes_seconds}), ++outstanding_, gave = true;
        Outgoing& one = outgoing_.emplace_back();
        one.task = std::move(errand->task);
        MPI_Isend(one.task.data(), static_cast<int>(one.task.size()), MPI_CHAR, static_cast<int>(rank),
                  task_tag, MPI_COMM_WORLD, &one.request);
      }
    return gave;
  }
  bool take() {
    const auto message = arrived(MPI_ANY_SOURCE, reply_tag);
    if (!message) return false;
    auto& held = held_[static_cast<std::size_t>(message->from)];  // a rank replies in the order of its tasks
    const std::size_t ticket = held.front().ticket;
    held.pop_front(), --outstanding_;
    forget_sent();
    const std::lock_guard lock(mutex_);
    errands_.answered(ticket, message->text);
    return true;
  }
  void forget_sent() {
    outgoing_.remove_if([](Outgoing& one) {
      int done = 0;
      MPI_Test(&one.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
  }

  const Ranks::Errands& errands_;
  const Ranks::Work& own_;
  std::vector<std::deque<Held>> held_;
  std::list<Outgoing> outgoing_;
  std::mutex mutex_;
  std::size_t outstanding_ = 0;
  std::atomic<bool> finished_ = false, ended_ = false;
};

}  // namespace

Ranks::Ranks() {
  if (!launched_by_mpirun()) return;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  begun_ = true;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Ranks::~Ranks() {
  if (!begun_) return;
  dismiss();
  MPI_Finalize();
}

void Ranks::take_own_gpu() const {
  if (!begun_) return;
  MPI_Comm machine;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  int local = 0;
  MPI_Comm_rank(machine, &local);
  MPI_Comm_free(&machine);
  const std::vector<std::string> gpus = visible_devices();
  if (gpus.empty()) return;
  setenv("CUDA_VISIBLE_DEVICES", gpus[static_cast<std::size_t>(local) % gpus.size()].c_str(), 1);
}

std::string Ranks::told(const std::string& text) const {
  if (!begun_) return text;
  if (rank_ > 0) return wait_for(0, facts_tag).text;
  for (int rank = 1; rank < size_; ++rank) send(text, rank, facts_tag);
  return text;
}

std::string Ranks::agree(const std::string& facts, const std::string& wrong) const {
  if (!begun_) return wrong;
  if (rank_ > 0) {
    send(facts, 0, facts_tag), send(wrong.empty() ? "" : host() + ": " + wrong, 0, wrong_tag);
    return told("");
  }
  std::string why = wrong;
  for (int rank = 1; rank < size_; ++rank) {
    const bool same = wait_for(rank, facts_tag).text == facts;
    const std::string theirs = wait_for(rank, wrong_tag).text;
    if (!why.empty()) continue;
    if (!theirs.empty())
      why = fmt::format("rank {} on {}", rank, theirs);
    else if (!same)
      why = fmt::format("rank {} has another attest or other kernels than rank 0, expected the same", rank);
  }
  return told(why);
}

void Ranks::hand_out(const Errands& errands, const Work& own) const { Round(errands, own, size_).run(); }

void Ranks::serve(const Work& work) const {
  try {
    for (;;) {
      const Message message = wait_for(0, MPI_ANY_TAG);
      if (message.tag == dismissed_tag) return;
      send(work(message.text), 0, reply_tag);
    }
  } catch (const std::exception& error) {
    std::cerr << fmt::format("attest: rank {} on {}: {}\n", rank_, host(), printable(error.what(), 2000))
              << std::flush;
    MPI_Abort(MPI_COMM_WORLD, 70);
  }
}

void Ranks::dismiss() {
  if (begun_ && rank_ == 0 && !dismissed_)
    for (int rank = 1; rank < size_; ++rank) send("", rank, dismissed_tag);
  dismissed_ = true;
}

}  // namespace attest
