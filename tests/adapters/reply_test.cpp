// What a kernel's process answers is a result that can be recorded, or Misbehaved; never the end of this process.
#include "gpu_checks/adapters/reply.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_checks/adapters/announcement.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using testing::HasSubstr;

template <class Read>
std::string misconduct(Read&& read) {
  try {
    read();
  } catch (const Misbehaved& fault) {
    return fault.what;
  }
  return "";
}

std::string nested(std::size_t depth) {
  return R"({"call": )" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

TEST(Reply, TakesATimeOnlyWhereItIsOne) {
  const auto time = [](const std::string& text) {
    return read_call_reply(R"({"call": 7, "status": "ok", "nanoseconds": )" + text + "}", 7).nanoseconds;
  };
  EXPECT_EQ(time("81234"), 81234);
  EXPECT_EQ(time("9223372036854775807"), INT64_MAX);
  for (const char* none : {"-5", "18446744073709551615", "1.5", "\"fast\"", "null", "[1]"})
    EXPECT_EQ(time(none), 0) << none;
  EXPECT_EQ(read_plugin_reply(R"({"status": 0, "nanoseconds": -5})").result.nanoseconds, 0);
}

TEST(Reply, ThatIsNestedDeepIsRefusedBeforeItIsCopiedOrPrinted) {
  EXPECT_THAT(misconduct([] { read_call_reply(nested(400'000), 7); }), HasSubstr("nested more than 32 deep"));
  EXPECT_THAT(misconduct([] { read_hello(nested(400'000)); }), HasSubstr("nested more than 32 deep"));
  EXPECT_EQ(misconduct([] { read_plugin_reply(nested(400'000)); }), "wrote to a socket that is not its own");
  EXPECT_THAT(misconduct([] { read_call_reply(nested(31), 7); }), HasSubstr("answered call [[[[["));
  EXPECT_THAT(misconduct([] { read_call_reply(nested(32), 7); }), HasSubstr("nested more than 32 deep"));
}

TEST(Reply, OfAPluginWithMembersOfOtherTypesIsAVerdictToo) {
  for (const char* text : {R"({"status": "fine"})", R"({"status": {"a": 1}, "message": 5})", "{}"}) {
    const PluginReply reply = read_plugin_reply(text);
    EXPECT_EQ(reply.result.status, KernelStatus::failed) << text;
    EXPECT_THAT(reply.result.message, HasSubstr("which is no attest_status"));
  }
  EXPECT_EQ(read_plugin_reply(R"({"status": 0, "fault": 1, "broken": "yes"})").result.status,
            KernelStatus::ok);
  EXPECT_EQ(misconduct([] { read_plugin_part(R"({"kernels": 5})"); }),
            "wrote to a socket that is not its own");
  EXPECT_EQ(misconduct([] { read_plugin_part(R"({"refused": 5})"); }),
            "wrote to a socket that is not its own");
  EXPECT_EQ(read_plugin_part(R"({"refused": "no"})").refused, "no");
}

TEST(Reply, AnnouncesWithAnyMemberRunButFalse) {
  const auto announce = [](const std::string& run) {
    return read_announcement(
        read_hello(R"({"attest": 1, "kernels": [{"name": "mine", "op": "linear", "form": "stream",
                    "contract": "input=fp32 output=fp32", "run": )" +
                   run + "}]}"),
        "--process x", "");
  };
  for (const char* run : {"true", "null", "\"yes\"", "[]"}) EXPECT_EQ(announce(run).size(), 1u) << run;
  EXPECT_THROW(announce("false"), BadInput);
}

}  // namespace
}  // namespace attest
