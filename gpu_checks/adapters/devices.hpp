// The GPUs that a run may use: one worker of a door for each, told apart by CUDA_VISIBLE_DEVICES. A thread keeps its worker,
// so that calls that are compared with one another are made on one GPU.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace attest {

// The entries of CUDA_VISIBLE_DEVICES, or without it the numbers of the GPUs that this machine, or this container, shows.
std::vector<std::string> visible_devices();

// "0,1" as the entries of CUDA_VISIBLE_DEVICES. BadInput: an empty one, one twice, or other characters than a device's name has.
std::vector<std::string> parse_devices(const std::string& list);

// The command of a Child with that device as the only one visible; as it is where `device` is empty. Its supervisor reads the
// setting, so that the program is started as itself.
inline constexpr const char* visible_devices_setting = "CUDA_VISIBLE_DEVICES=";
std::vector<std::string> on_device(std::vector<std::string> command, const std::string& device);

// The lowest number that no other running thread has, from the first call of this thread to its end.
std::size_t number_of_thread();

// One door for each device; that of the calling thread.
template <class Door>
class DoorOfEachDevice {
 public:
  template <class Make>  // shared_ptr<Door>(device); no devices: one door, for ""
  DoorOfEachDevice(const std::vector<std::string>& devices, Make&& make) {
    for (const std::string& device : devices) doors_.push_back(make(device));
    if (doors_.empty()) doors_.push_back(make(""));
  }
  Door& first() const { return *doors_[0]; }
  Door& of_this_thread() const { return *doors_[number_of_thread() % doors_.size()]; }
  const std::vector<std::shared_ptr<Door>>& all() const { return doors_; }

 private:
  std::vector<std::shared_ptr<Door>> doors_;
};

}  // namespace attest
