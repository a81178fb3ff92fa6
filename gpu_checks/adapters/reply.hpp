// What comes back from a kernel's process, read without trust: whatever the bytes are, there is a value that can be
// recorded or Misbehaved, which says what the child did ("answered with ..."). Pure: no process is needed to test it.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gpu_checks/kernel.hpp"

namespace attest {

// A child did what no kernel may: the message says what.
struct Misbehaved {
  std::string what;
};

// An object. JSON is copied, compared and printed by recursion, so that deep nesting would end this process.
inline constexpr int reply_depth = 32;
nlohmann::json parse_reply(std::string_view text);

// PROTOCOL.md: the announcement, and the answer to a call: status, message and nanoseconds, without outputs.
nlohmann::json read_hello(std::string_view text);
KernelResult read_call_reply(std::string_view text, std::int64_t call);
// The SHA-256 of the program that its announcement names; empty where it names none. BadInput.
std::string announced_sha256(const nlohmann::json& announced, const std::string& place);

// The packets of plugin_worker.cpp, which the plug-in could have written: a part of an announcement, and an answer.
struct PluginPart {
  std::string refused;     // why there is no announcement
  nlohmann::json kernels;  // an array
  bool last = true;
};
PluginPart read_plugin_part(std::string_view text);
struct PluginReply {
  KernelResult result;
  bool broken = false;  // no further call can be made
};
PluginReply read_plugin_reply(std::string_view text);

}  // namespace attest
