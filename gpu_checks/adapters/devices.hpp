// The GPUs that a run may use: workers of a door for each, told apart by CUDA_VISIBLE_DEVICES. A thread keeps its worker,
// so that calls that are compared with one another are made on one GPU.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/tensor/matrix.hpp"

namespace attest {

// The entries of CUDA_VISIBLE_DEVICES, or without it the numbers of the GPUs that this machine, or this container, shows.
std::vector<std::string> visible_devices();

// "0,1" as the entries of CUDA_VISIBLE_DEVICES. BadInput: an empty one, one twice, or other characters than a device's name has.
std::vector<std::string> parse_devices(const std::string& list);

// BadInput for a number that is none of visible_devices(). Other names (GPU-…, MIG-…) need one GPU; only CUDA knows them.
void require_visible(const std::vector<std::string>& devices);

// The command of a Child with that device as the only one visible; as it is where `device` is empty. Its supervisor reads the
// setting, so that the program is started as itself.
inline constexpr const char* visible_devices_setting = "CUDA_VISIBLE_DEVICES=";
std::vector<std::string> on_device(std::vector<std::string> command, const std::string& device);

// The lowest number that no other running thread has, from the first call of this thread to its end; or the one given.
std::size_t number_of_thread();

// While it lives, this thread has that number: which worker it keeps does not depend on which threads there are.
class NumberedThread {
 public:
  explicit NumberedThread(std::size_t number);
  ~NumberedThread();
  NumberedThread(const NumberedThread&) = delete;
  NumberedThread& operator=(const NumberedThread&) = delete;

 private:
  const std::optional<std::size_t> outer_;
};

// The device of each worker, neighbours on different ones; "": whatever there is.
std::vector<std::string> devices_of_workers(const std::vector<std::string>& devices, Index workers_on_each);

// One door for each worker; that of the calling thread.
template <class Door>
class DoorOfEachWorker {
 public:
  template <class Make>  // shared_ptr<Door>(device)
  DoorOfEachWorker(const std::vector<std::string>& devices, Make&& make) {
    for (const std::string& device : devices) doors_.push_back(make(device));
  }
  Door& first() const { return *doors_[0]; }
  Door& of_this_thread() const { return *doors_[number_of_thread() % doors_.size()]; }
  const std::vector<std::shared_ptr<Door>>& all() const { return doors_; }

 private:
  std::vector<std::shared_ptr<Door>> doors_;
};

}  // namespace attest
