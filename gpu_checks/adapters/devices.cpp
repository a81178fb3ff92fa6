#include "gpu_checks/adapters/devices.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> entries(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return names;
}

class NumberOfThread {
 public:
  NumberOfThread() {
    const std::lock_guard lock(guard());
    while (taken().contains(number)) ++number;
    taken().insert(number);
  }
  ~NumberOfThread() {
    const std::lock_guard lock(guard());
    taken().erase(number);
  }
  NumberOfThread(const NumberOfThread&) = delete;
  NumberOfThread& operator=(const NumberOfThread&) = delete;
  std::size_t number = 0;

 private:
  // Never destroyed: threads may end after this file's statics.
  static std::mutex& guard() {
    static auto* const one = new std::mutex;
    return *one;
  }
  static std::set<std::size_t>& taken() {
    static auto* const one = new std::set<std::size_t>;
    return *one;
  }
};

}  // namespace

std::vector<std::string> visible_devices() {
  std::vector<std::string> names;
  if (const char* set = std::getenv("CUDA_VISIBLE_DEVICES")) {
    if (*set) names = entries(set);
    return names;
  }
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator at("/dev", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    count += name.starts_with("nvidia") && all_digits(name.substr(6));
  }
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

std::vector<std::string> parse_devices(const std::string& list) {
  const auto refuse = [&](const std::string& why) {
    throw BadInput("--devices " + in_quotes(list) + ": " + why +
                   ", expected devices as of CUDA_VISIBLE_DEVICES, such as 0,1");
  };
  std::vector<std::string> names = entries(list);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.empty()) refuse("an empty entry");
    const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '/';
    });
    if (!is_name || name[0] == '-') refuse(in_quotes(name) + " is no device");
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), name) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      refuse(in_quotes(name) + " twice");
  }
  return names;
}

void require_visible(const std::vector<std::string>& devices) {
  const std::vector<std::string> visible = visible_devices();
  if (visible.empty() && std::filesystem::exists("/dev/dxg")) return;  // a GPU of Windows has no number here
  for (const std::string& device : devices) {
    if (std::ranges::find(visible, device) != visible.end()) continue;
    if (!visible.empty() && !all_digits(device)) continue;
    std::string expected = "a machine with a GPU";
    for (const std::string& name : visible)
      expected = (&name == &visible[0] ? "of " : expected + ", ") + name;
    throw BadInput("--devices: no GPU " + in_quotes(device) + " is visible here, expected " + expected);
  }
}

std::vector<std::string> devices_of_workers(const std::vector<std::string>& devices, Index workers_on_each) {
  std::vector<std::string> all;
  for (Index i = 0; i < workers_on_each; ++i) {
    all.insert(all.end(), devices.begin(), devices.end());
    if (devices.empty()) all.emplace_back();
  }
  return all;
}

std::vector<std::string> on_device(std::vector<std::string> command, const std::string& device) {
  if (!device.empty()) command.insert(command.begin(), visible_devices_setting + device);
  return command;
}

static std::optional<std::size_t>& given_number() {
  thread_local std::optional<std::size_t> number;
  return number;
}

NumberedThread::NumberedThread(std::size_t number) : outer_(given_number()) { given_number() = number; }
NumberedThread::~NumberedThread() { given_number() = outer_; }

std::size_t number_of_thread() {
  if (given_number()) return *given_number();
  thread_local const NumberOfThread mine;
  return mine.number;
}

}  // namespace attest
