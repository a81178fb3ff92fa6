#include "fuzz/task.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>

#include "fuzz/corpus.hpp"
#include "fuzz/features.hpp"
#include "fuzz/finding.hpp"
#include "fuzz/shrink.hpp"
#include "gpu_checks/adapters/child.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/numeric/hex_float.hpp"
#include "reference/tensor/bad_input.hpp"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

// Of one failure, where the kernel that was running had shrunk something else: each starts a process.
constexpr Index most_afresh = 200;

class Doing {
 public:
  Doing(const Subject& subject, const HowToDo& how)
      : subject_(subject),
        how_(how),
        op_(operator_named(subject.kernel.op, subject.kernel.variant)),
        context_{subject.kernel, op_, how.seed, Effort::quick} {}

  HuntReply ask_once(const HuntTask& task) const {
    HuntReply reply;
    if (task.number > 0 && late()) return reply;
    const std::int64_t before = thread_nanoseconds();
    const Answer answer = ask(context_, task.input);
    reply.nanoseconds = thread_nanoseconds() - before;
    if (answer.asked) reply.cell = cell_of(context_, task.input, *answer.asked);
    reply.reached = answer.reached;
    take(reply, answer);
    if (answer.failed() && task.number > 0 && !how_.first_failure_alone && !late())
      try_single(reply, task.input);
    reply.cut = answer.given_up;
    reply.done = !reply.cut && !stopped();  // what a signal did to a kernel is no failure
    return reply;
  }

  HuntReply settle(const HuntTask& task) const {
    HuntReply reply;
    reply.done = true, reply.first = reply.shrunk = task.input;
    std::string part = task.part, way;
    if (late())
      reply.shrinking_finished = false;
    else if (repeats(reply, part, way))
      shrink_failure(reply, part, way);
    else if (late())
      reply.shrinking_finished = false;
    else
      reply.after =
          cannot_start_.empty()
              ? std::string(does_not_repeat) +
                    ": no fresh kernel fails so on this input, which is not shrunk and goes into no "
                    "corpus; it depends on the calls before, on time or on chance"
              : "no fresh kernel could be asked: " + cannot_start_;
    if (is_battery(reply.shrunk.question)) return reply;
    if (const Built built = build(context_, reply.shrunk); built.problem)
      reply.cell = cell_of(context_, reply.shrunk, *built.problem);
    return reply;
  }

 private:
  bool stopped() const { return how_.stop && how_.stop(); }
  bool late() const { return stopped() || (how_.late && how_.late()); }
  Answer ask_kernel(const Kernel& kernel, const FuzzInput& input) const {
    return ask({kernel, op_, how_.seed, Effort::quick}, input);
  }
  Answer ask_afresh(const FuzzInput& input) const {
    try {
      const Kernel fresh = subject_.fresh();
      return ask_kernel(fresh, input);
    } catch (const AnswerGivenUp&) {  // while it was started
      Answer answer;
      answer.given_up = true;
      return answer;
    } catch (const BadInput& error) {
      cannot_start_ = error.what();
      return {};
    }
  }
  static void take(HuntReply& reply, const Answer& answer) {
    reply.verdict = answer.outcome.verdict, reply.reason = answer.outcome.reason;
    reply.part = answer.failed() ? failed_part(answer) : "";
  }

  // A failure that one call shows as well is that of one call.
  void try_single(HuntReply& reply, const FuzzInput& input) const {
    const auto question = single_question(input.question);
    if (!question) return;
    FuzzInput single = input;
    single.question = *question;
    if (const Answer one = ask_afresh(single); one.failed()) take(reply, one), reply.single = true;
  }

  // Asked again of a fresh kernel; if it passes there, the calls before mattered: the questions that make several.
  bool repeats(HuntReply& reply, std::string& part, std::string& way) const {
    const Answer answer = ask_afresh(reply.first);
    way = way_of_breaking(answer.outcome.reason);
    if (fails_in(answer, part)) return true;
    if (is_battery(reply.first.question)) return false;
    for (const Question question : {Question::lattice_again, Question::new_data, Question::again}) {
      if (is_lattice(question) != is_lattice(reply.first.question)) continue;  // it would draw other values
      FuzzInput several = reply.first;
      several.question = question;
      if (!cannot_ask(context_, question).empty()) continue;
      if (late()) return false;
      const Answer after = ask_afresh(several);
      if (!after.failed() || stopped()) continue;
      part = failed_part(after), way = way_of_breaking(after.outcome.reason);
      reply.first = reply.shrunk = several;
      reply.after = "found by another check, repeated with other calls before";
      return true;
    }
    return false;
  }

  void shrink_failure(HuntReply& reply, const std::string& part, const std::string& way) const {
    const bool afresh = !subject_.pure && (!subject_.fresh_costs || single_question(reply.first.question));
    if (shrink_by(reply, part, way, how_.most_shrinking, afresh)) return;
    // The calls before it were part of the failure.
    const Index left = std::min(how_.most_shrinking - reply.shrinking, most_afresh);
    if (!subject_.pure && !afresh && shrink_by(reply, part, way, left, true)) return;
    if (stopped()) return;
    if (!reply.after.empty()) reply.after += "; ";
    reply.after += "not shrunk: no fresh kernel fails so on the input to which it was shrunk";
  }

  // Of fresh kernels, or of the one that has answered before. False: on the result a fresh one does not fail so, and the input
  // stays as it was.
  bool shrink_by(HuntReply& reply, const std::string& part, const std::string& way, Index most,
                 bool afresh) const {
    CheckOutcome failed;  // the last that fails
    const auto fails = [&](const FuzzInput& candidate) {
      const Answer answer = afresh ? ask_afresh(candidate) : ask_kernel(subject_.kernel, candidate);
      if (stopped() || !fails_in(answer, part) || way_of_breaking(answer.outcome.reason) != way) return false;
      failed = answer.outcome;
      return true;
    };
    const Shrunk shrunk = shrink(
        context_, reply.first, fails, most, [this] { return late(); }, [&] { return failed.worst; });
    reply.shrinking += shrunk.asked, reply.shrinking_finished = shrunk.finished;
    Answer last;
    if (!stopped()) last = ask_afresh(shrunk.input);
    if (stopped() || last.given_up) {  // what failed before counts
      if (failed.verdict != Verdict::fail) return true;
      reply.shrunk = shrunk.input, reply.reason = failed.reason;
      if (!afresh && !subject_.pure)
        reply.after = "of the shrunk input no fresh kernel was asked: the hunt was over";
      return true;
    }
    if (!fails_in(last, part) || way_of_breaking(last.outcome.reason) != way) return false;
    reply.shrunk = shrunk.input, reply.reason = last.outcome.reason;
    return true;
  }

  const Subject& subject_;
  const HowToDo& how_;
  const Operator& op_;
  const BatteryContext context_;
  mutable std::string cannot_start_;  // why there was no fresh kernel
};

std::string input_text(const FuzzInput& input) { return to_text(CorpusCase{input, {}, {}, {}}); }
FuzzInput parse_input(const Json& text) {
  return parse_corpus_case(text.get_ref<const std::string&>(), "an input of a hunt").input;
}
std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::optional<Verdict> verdict_named(std::string_view name) {
  for (const Verdict one :
       {Verdict::pass, Verdict::suspect, Verdict::fail, Verdict::undecided, Verdict::not_run})
    if (verdict_name(one) == name) return one;
  return std::nullopt;
}

Json parse_object(const std::string& line, std::string_view what) {
  Json json = Json::parse(line, nullptr, false);
  if (!json.is_object())
    throw BadInput(std::string(what) + ": " + in_quotes(line) + ": expected a JSON object");
  return json;
}
template <class Read>
auto read_line(const std::string& line, std::string_view what, Read&& read) {
  const Json json = parse_object(line, what);
  try {
    return read(json);
  } catch (const Json::exception& error) {
    throw BadInput(std::string(what) + ": " + in_quotes(line) + ": " + error.what());
  }
}

}  // namespace

HuntReply do_task(const Subject& subject, const HuntTask& task, const HowToDo& how) {
  const bool of_corpus = task.kind == HuntTask::Kind::ask && task.number == 0;
  const auto begun = std::chrono::steady_clock::now();
  const GiveUpAnswers at_the_end([&] {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    if (how.stop && how.stop()) return true;
    return of_corpus ? how.seconds && taken.count() >= *how.seconds : how.late && how.late();
  });
  const Doing doing(subject, how);
  return task.kind == HuntTask::Kind::ask ? doing.ask_once(task) : doing.settle(task);
}

bool takes_seconds(const HuntTask& task) {
  return task.kind == HuntTask::Kind::settle || is_battery(task.input.question);
}

std::string way_of_breaking(const std::string& reason) {
  const std::size_t at = reason.find("the kernel failed: ");
  if (at == std::string::npos) return "";
  std::string way = reason.substr(at, reason.find_first_of(";(", at) - at);
  way.resize(way.find_last_not_of(' ') + 1);
  static const std::regex numbers("\\b[0-9]+([,.]? ?[0-9]+)*");
  return std::regex_replace(way, numbers, "N");
}

std::string to_line(const HuntTask& task) {
  Json json{{"task", task.kind == HuntTask::Kind::ask ? "ask" : "settle"}, {"number", task.number}};
  if (!task.part.empty()) json["part"] = task.part;
  json["input"] = input_text(task.input);
  return dumped(json);
}

HuntTask parse_task(const std::string& line) {
  return read_line(line, "a task of a hunt", [](const Json& json) {
    HuntTask task;
    task.kind = json.at("task") == "settle" ? HuntTask::Kind::settle : HuntTask::Kind::ask;
    task.number = json.at("number"), task.part = json.value("part", "");
    task.input = parse_input(json.at("input"));
    return task;
  });
}

std::string to_line(const HuntReply& r) {
  if (r.cut) return dumped(Json{{"cut", true}});
  Json json{
      {"verdict", verdict_name(r.verdict)}, {"reached", to_hex_float(r.reached)}, {"ns", r.nanoseconds}};
  if (r.single) json["single"] = true;
  for (const auto& [key, text] :
       {std::pair("cell", &r.cell), {"reason", &r.reason}, {"part", &r.part}, {"after", &r.after}})
    if (!text->empty()) json[key] = *text;
  if (r.first.shape.tokens) {
    json["first"] = input_text(r.first), json["shrunk"] = input_text(r.shrunk);
    json["shrinking"] = r.shrinking, json["shrinking_finished"] = r.shrinking_finished;
  }
  return dumped(json);
}

HuntReply parse_reply(const std::string& line) {
  return read_line(line, "a reply of a hunt", [&](const Json& json) {
    HuntReply r;
    if (json.value("cut", false)) return r.cut = true, r;
    const auto reached = from_hex_float(json.at("reached").get_ref<const std::string&>());
    const auto verdict = verdict_named(json.at("verdict").get_ref<const std::string&>());
    if (!reached || !verdict)
      throw BadInput("a reply of a hunt: " + in_quotes(line) + ": expected a verdict and error/bound");
    r.done = true, r.verdict = *verdict, r.reached = *reached;
    r.nanoseconds = json.at("ns"), r.single = json.value("single", false);
    r.cell = json.value("cell", ""), r.reason = json.value("reason", "");
    r.part = json.value("part", ""), r.after = json.value("after", "");
    if (json.contains("first")) {
      r.first = parse_input(json.at("first")), r.shrunk = parse_input(json.at("shrunk"));
      r.shrinking = json.at("shrinking"), r.shrinking_finished = json.at("shrinking_finished");
    }
    return r;
  });
}

}  // namespace attest
