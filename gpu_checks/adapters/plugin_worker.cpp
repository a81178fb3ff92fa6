// The process in which plug-ins run: loads the library, says what it announces, then answers calls until its socket
// (descriptor 3) is closed. Packets are JSON; a call brings the inputs and outputs as two descriptors of memory.
// Inputs are mapped read-only from sealed memory; outside the regions lie pages that cannot be touched. A signal
// handler says which memory a crash was about, then lets the crash happen.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gpu_checks/adapters/attest_kernel.h"
#include "gpu_checks/adapters/child.hpp"
#include "gpu_checks/adapters/cuda_driver.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Json = nlohmann::json;

constexpr int control = 3;
constexpr std::size_t margin = 1 << 20, longest_text = 2048, longest_message = 1024;

void send_packet(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (send(control, text.data(), text.size(), MSG_NOSIGNAL) < 0) _exit(0);
}

// ---- what a crash is about

struct Watched {
  const char* what;
  std::uintptr_t first, last;
};
std::array<Watched, 3> watched{};  // of the call in progress

void tell_crash(int signal, const siginfo_t* info, const void* context) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const char* access = "touched";
#ifdef __x86_64__
  if (signal == SIGSEGV)
    access = (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "wrote to"
                                                                                            : "read from";
#else
  (void)context;
#endif
  const char* what = at < 4096 ? "a null pointer" : "an address that is not its own";
  for (const Watched& memory : watched)
    if (memory.what && at >= memory.first && at < memory.last) what = memory.what;
  std::array<char, 128> text{'!'};
  std::size_t length = 1;
  for (const char* part : {access, " ", what})
    for (; *part != 0 && length < text.size(); ++part) text[length++] = *part;
  send(control, text.data(), length, MSG_NOSIGNAL);
}

void on_crash(int signal, siginfo_t* info, void* context) {
  const bool fault = info->si_code > 0;  // else raised, or sent by a process: about no memory
  if (fault) tell_crash(signal, info, context);
  std::signal(signal, SIG_DFL), raise(signal);  // it is blocked here and ends the process on return
}

void watch_crashes() {
  static std::array<char, 1 << 16> stack;
  const stack_t other{stack.data(), 0, stack.size()};
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
  // The rest ends the process as a signal, whatever a runtime linked to it (a sanitizer's) has arranged.
  for (const int signal : {SIGFPE, SIGILL, SIGABRT, SIGTRAP}) std::signal(signal, SIG_DFL);
}

// ---- what is announced

Json text_or_null(const char* text) {
  return text ? Json(std::string(text, strnlen(text, longest_text))) : Json(nullptr);
}

const attest_kernel* announce(const char* library, std::int32_t& count) {
  const auto refuse = [](const std::string& why) {
    send_packet({{"refused", why}});
    _exit(0);
  };
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) refuse(fmt::format("cannot be loaded ({}), expected a shared library", dlerror()));
  using Function = const attest_kernel* (*)(std::uint32_t, std::size_t, std::int32_t*);
  const auto function = reinterpret_cast<Function>(dlsym(handle, "attest_kernels"));
  if (!function) refuse("has no function attest_kernels, expected that of attest_kernel.h");
  const attest_kernel* kernels = function(ATTEST_ABI, sizeof(attest_kernel), &count);
  if (!kernels)
    refuse(fmt::format("was built for another attest_kernel.h (its ABI version is {}), expected version {}",
                       count, ATTEST_ABI));
  if (count < 1 || count > 10000) refuse(fmt::format("announces {} kernels, expected 1 to 10000", count));
  Json list = Json::array();
  for (std::int32_t i = 0; i < count; ++i) {
    const attest_kernel& k = kernels[i];
    list.push_back({{"name", text_or_null(k.name)},
                    {"op", text_or_null(k.op)},
                    {"variant", text_or_null(k.variant)},
                    {"form", text_or_null(k.form)},
                    {"contract", text_or_null(k.contract)},
                    {"features", text_or_null(k.features)},
                    {"limits", text_or_null(k.limits)},
                    {"device", text_or_null(k.device)},
                    {"run", k.run != nullptr}});
    const bool last = i + 1 == count;
    if (!last && list.size() < 4) continue;  // a packet has its limits
    send_packet({{"kernels", list}, {"last", last}});
    list.clear();
  }
  return kernels;
}

// ---- a call

// Memory with untouchable margins on both sides.
class Mapping {
 public:
  Mapping(std::size_t bytes, int descriptor, bool writable) : bytes_((bytes + 4095) / 4096 * 4096) {
    void* all =
        mmap(nullptr, bytes_ + 2 * margin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw BadInput("not enough memory in the worker");
    all_ = static_cast<std::byte*>(all);
    if (bytes_ == 0) return;
    const int kind = descriptor >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    if (mmap(data(), bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ, kind | MAP_FIXED, descriptor,
             0) == MAP_FAILED)
      throw BadInput("not enough memory in the worker");
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(all_, bytes_ + 2 * margin); }
  std::byte* data() const { return all_ + margin; }
  std::size_t bytes() const { return bytes_; }
  Watched watch(const char* what) const {
    const auto first = reinterpret_cast<std::uintptr_t>(all_);
    return {what, first, first + bytes_ + 2 * margin};
  }

 private:
  std::size_t bytes_;
  std::byte* all_ = nullptr;
};

// The descriptors of one side of a call, as the plug-in sees them.
class Side {
 public:
  Side(const Json& json, DLDevice device) : list_(json["tensors"].size()) {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Json& from = json["tensors"][i];
      One& to = list_[i];
      from["name"].get_to(to.name), from["shape"].get_to(to.shape), from["strides"].get_to(to.strides);
      from["at"].get_to(to.at);
      to.tensor = {nullptr,
                   device,
                   static_cast<std::int32_t>(to.shape.size()),
                   {from["code"].get<std::uint8_t>(), from["bits"].get<std::uint8_t>(), 1},
                   to.shape.data(),
                   to.strides.data(),
                   from["offset"].get<std::uint64_t>()};
      named_.push_back({to.name.c_str(), &to.tensor});
    }
  }
  void set_base(std::byte* base) {
    for (One& one : list_) one.tensor.data = base ? base + one.at : nullptr;
  }
  const std::vector<attest_tensor>& named() const { return named_; }

 private:
  struct One {
    std::string name;
    std::vector<std::int64_t> shape, strides;
    std::size_t at = 0;
    DLTensor tensor{};
  };
  std::vector<One> list_;
  std::vector<attest_tensor> named_;
};

struct Finished {
  attest_status status = ATTEST_FAILED;
  std::int64_t nanoseconds = 0;
  std::string fault;    // what the kernel did wrong beside its status
  bool broken = false;  // no further call can be made in this process
};

constexpr std::byte workspace_mark{0xc3};

bool untouched(const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (from[i] != workspace_mark) return false;
  return true;
}

template <class F>
std::int64_t timed(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

Finished on_host(const attest_kernel& kernel, attest_call& call, Side& inputs, Side& outputs,
                 const Mapping& in, const Mapping& out, std::size_t workspace) {
  constexpr std::size_t zone = 4096;
  const std::size_t whole = (workspace + 255) / 256 * 256;
  const Mapping work(whole + 2 * zone, -1, true);
  std::memset(work.data(), static_cast<int>(workspace_mark), work.bytes());
  std::memset(work.data() + zone, 0xff, workspace);
  inputs.set_base(in.data()), outputs.set_base(out.data());
  if (workspace > 0) call.workspace = work.data() + zone;
  watched = {in.watch("an input or beside it"), out.watch("memory far from any output"),
             work.watch("memory far from its workspace")};
  Finished finished;
  finished.nanoseconds = timed([&] { finished.status = kernel.run(&call); });
  watched = {};
  if (!untouched(work.data(), zone) ||
      !untouched(work.data() + zone + workspace, work.bytes() - zone - workspace))
    finished.fault = fmt::format("wrote beside its workspace of {} bytes", workspace);
  return finished;
}

Finished on_cuda(const attest_kernel& kernel, attest_call& call, Side& inputs, Side& outputs,
                 const Mapping& in, const Mapping& out, std::size_t workspace) {
  constexpr std::size_t zone = 4096;
  CudaDriver& cuda = *CudaDriver::get();
  Finished finished;
  // The workspace, which may be gigabytes, is filled on the device, and of it only the zones beside it come back.
  const std::size_t whole = (workspace + 255) / 256 * 256 + 2 * zone, behind = whole - zone - workspace;
  CudaMemory device_in(cuda, in.bytes()), device_out(cuda, out.bytes()), device_work(cuda, whole);
  std::vector<std::byte> back(in.bytes()), before_it(zone), behind_it(behind);
  if (!device_in.copy_in(in.data()) || !device_out.copy_in(out.data()) ||
      !device_work.fill(0, whole, workspace_mark) || !device_work.fill(zone, workspace, std::byte{0xff}) ||
      !cuda.synchronize()) {
    finished.fault = "could not be given its tensors: " + cuda.error();
    finished.broken = true;
    return finished;
  }
  inputs.set_base(device_in.data()), outputs.set_base(device_out.data());
  if (workspace > 0) call.workspace = device_work.data() + zone;
  bool fine = true;
  call.stream = cuda.stream();
  finished.nanoseconds = timed([&] {
    finished.status = kernel.run(&call);
    fine = cuda.synchronize();
  });
  fine = fine && device_out.copy_out(out.data()) && device_in.copy_out(back.data()) &&
         device_work.copy_out(before_it.data(), 0, zone) &&
         device_work.copy_out(behind_it.data(), zone + workspace, behind);
  if (!fine) {
    finished.fault = "came to grief on the GPU: " + cuda.error();
    finished.broken = true;
  } else if (std::memcmp(back.data(), in.data(), in.bytes()) != 0) {
    finished.fault = "wrote to an input or beside it";
  } else if (!untouched(before_it.data(), zone) || !untouched(behind_it.data(), behind)) {
    finished.fault = fmt::format("wrote beside its workspace of {} bytes", workspace);
  }
  return finished;
}

Json perform(const attest_kernel& kernel, const Json& request, int in_descriptor, int out_descriptor) {
  const bool cuda = kernel.device && std::strcmp(kernel.device, "cuda") == 0;
  if (cuda && !CudaDriver::get())
    return {{"status", ATTEST_UNSUPPORTED}, {"message", "no CUDA device is here"}};
  const DLDevice device{cuda ? 2 : 1, 0};
  Side inputs(request["inputs"], device), outputs(request["outputs"], device);
  const Mapping in(request["inputs"]["bytes"], in_descriptor, false),
      out(request["outputs"]["bytes"], out_descriptor, true);
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<attest_option> options;
  for (const auto& [key, option] : request["options"].items()) texts.emplace_back(key, option["text"]);
  for (const auto& [key, text] : texts)
    options.push_back({key.c_str(), text.c_str(), request["options"][key]["value"]});

  std::array<char, longest_message> message{};
  attest_call call{};
  call.inputs = inputs.named().data(), call.n_inputs = static_cast<std::int32_t>(inputs.named().size());
  call.outputs = outputs.named().data(), call.n_outputs = static_cast<std::int32_t>(outputs.named().size());
  call.options = options.data(), call.n_options = static_cast<std::int32_t>(options.size());
  call.message = message.data(), call.message_bytes = message.size();
  const auto said = [&] { return std::string(message.data(), strnlen(message.data(), message.size())); };

  if (kernel.workspace)
    if (const attest_status status = kernel.workspace(&call, &call.workspace_bytes); status != ATTEST_OK)
      return {{"status", status}, {"message", said()}};
  if (call.workspace_bytes > std::size_t{1} << 40)
    return {{"status", ATTEST_FAILED},
            {"message", fmt::format("asks for {} bytes of workspace", call.workspace_bytes)}};
  const Finished finished =
      (cuda ? on_cuda : on_host)(kernel, call, inputs, outputs, in, out, call.workspace_bytes);
  return {{"status", finished.status},
          {"message", said()},
          {"fault", finished.fault},
          {"broken", finished.broken},
          {"nanoseconds", finished.nanoseconds}};
}

// The next request, with the descriptors of its memory.
bool receive(std::string& text, std::array<int, 2>& descriptors) {
  text.resize(1 << 20);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 2)> rights{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = rights.data(), message.msg_controllen = rights.size();
  ssize_t got = 0;
  while ((got = recvmsg(control, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (!header || header->cmsg_len != CMSG_LEN(sizeof descriptors)) return false;
  std::memcpy(descriptors.data(), CMSG_DATA(header), sizeof descriptors);
  text.resize(static_cast<std::size_t>(got));
  return true;
}

}  // namespace

int plugin_worker(const char* library) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what it prints before it crashes is wanted
  watch_crashes();
  std::int32_t count = 0;
  const attest_kernel* kernels = announce(library, count);
  std::string text;
  const pid_t self = getpid();
  for (std::array<int, 2> memory{}; receive(text, memory);) {
    Json reply;
    try {
      const Json request = Json::parse(text);
      reply = perform(kernels[request["kernel"].get<std::size_t>()], request, memory[0], memory[1]);
    } catch (const std::exception& error) {  // also one that the plug-in throws
      reply = {{"status", ATTEST_FAILED},
               {"message", fmt::format("an exception left the kernel: {}", error.what())}};
    } catch (...) {
      reply = {{"status", ATTEST_FAILED}, {"message", "an exception left the kernel"}};
    }
    if (getpid() != self) _exit(0);  // a copy that the kernel made of this process: the calls are not its own
    close(memory[0]), close(memory[1]);
    std::fflush(nullptr);
    send_packet(reply);
  }
  return 0;
}

}  // namespace attest
