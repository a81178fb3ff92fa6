#include "gpu_checks/adapters/reply.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& reply, const char* key) {
  const auto found = reply.find(key);
  return found != reply.end() && found->is_string() ? found->get<std::string>() : "";
}

bool flag_of(const Json& reply, const char* key, bool otherwise) {
  const auto found = reply.find(key);
  return found != reply.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// A kernel's own time; none where it is no time.
std::int64_t nanoseconds_of(const Json& reply) {
  const auto found = reply.find("nanoseconds");
  if (found == reply.end() || !found->is_number_integer()) return 0;
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > std::uint64_t{INT64_MAX}) return 0;
  return std::max<std::int64_t>(found->get<std::int64_t>(), 0);
}

// How a value of a reply is quoted, whatever its bytes.
std::string quoted(const Json& value, std::size_t limit) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), limit);
}

std::string because(const std::string& message) { return message.empty() ? "" : ": " + message; }

}  // namespace

Json parse_reply(std::string_view text) {
  bool deep = false;
  const auto shallow = [&](int depth, Json::parse_event_t event, Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    deep = deep || (opens && depth >= reply_depth);
    return !deep;
  };
  Json reply = Json::parse(text, shallow, false);
  if (deep) throw Misbehaved{fmt::format("answered with JSON that is nested more than {} deep", reply_depth)};
  if (!reply.is_object()) throw Misbehaved{"answered with what is no JSON object: " + in_quotes(text)};
  return reply;
}

Json read_hello(std::string_view text) {
  Json reply = parse_reply(text);
  const auto version = reply.find("attest");
  if (version == reply.end() || *version != 1)
    throw Misbehaved{"speaks another version of the protocol, expected \"attest\": 1"};
  return reply;
}

KernelResult read_call_reply(std::string_view text, std::int64_t call) {
  const Json reply = parse_reply(text);
  if (const Json number = reply.value("call", Json()); number != call)
    throw Misbehaved{fmt::format("answered call {} when it was asked call {}", quoted(number, 40), call)};
  KernelResult result;
  const Json status = reply.value("status", Json());
  result.nanoseconds = nanoseconds_of(reply);
  result.message = printable(text_of(reply, "message"), 300);
  if (status == "unsupported") {
    result.status = KernelStatus::unsupported;
    result.message = "the process says that it does not support this" + because(result.message);
  } else if (status == "failed") {
    result.status = KernelStatus::failed;
    result.message = "the process says that it failed" + because(result.message);
  } else if (status != "ok") {
    throw Misbehaved{"answered with status " + quoted(status, 60) + ", expected ok, unsupported or failed"};
  }
  return result;
}

std::string announced_sha256(const Json& announced, const std::string& place) {
  const Json given = announced.value("sha256", Json(""));
  const std::string text = given.is_string() ? given.get<std::string>() : quoted(given, 80);
  const bool digits = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!text.empty() && (text.size() != 64 || !digits))
    throw BadInput(place + ": sha256 " + in_quotes(printable(text, 80)) + ": expected 64 hexadecimal digits");
  return text;
}

PluginPart read_plugin_part(std::string_view text) {
  const Misbehaved foreign{"wrote to a socket that is not its own"};
  try {
    const Json part = parse_reply(text);
    if (const std::string why = text_of(part, "refused"); !why.empty()) return {why, Json::array(), true};
    const auto kernels = part.find("kernels");
    if (kernels == part.end() || !kernels->is_array()) throw foreign;
    return {"", *kernels, flag_of(part, "last", true)};
  } catch (const Misbehaved&) {
    throw foreign;
  }
}

PluginReply read_plugin_reply(std::string_view text) {
  Json reply;
  try {
    reply = parse_reply(text);
  } catch (const Misbehaved&) {
    throw Misbehaved{"wrote to a socket that is not its own"};
  }
  PluginReply read;
  read.broken = flag_of(reply, "broken", false);
  KernelResult& result = read.result;
  result.nanoseconds = nanoseconds_of(reply);
  const auto failed = [&](const std::string& why) {
    result.status = KernelStatus::failed, result.message = "the kernel " + why;
    return read;
  };
  if (const std::string fault = printable(text_of(reply, "fault"), 300); !fault.empty()) return failed(fault);
  const std::string said = because(printable(text_of(reply, "message"), 300));
  const Json status = reply.value("status", Json(-1));
  if (status == 1) {
    result.status = KernelStatus::unsupported;
    result.message = "the kernel says that it does not support this" + said;
    return read;
  }
  if (status == 2) return failed("calls its inputs invalid" + said);
  if (status == 3) return failed("says that it failed" + said);
  if (status != 0) return failed("returned " + quoted(status, 60) + ", which is no attest_status" + said);
  return read;
}

}  // namespace attest
