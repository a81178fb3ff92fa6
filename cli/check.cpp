// attest check: kernels against the oracle, with records and a page.
#include "gpu_checks/check.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <mpfr.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "cli/battery.hpp"
#include "cli/commands.hpp"
#include "cli/doors.hpp"
#include "cli/last_words.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "gpu_checks/adapters/sha256.hpp"
#include "gpu_checks/case_problem.hpp"
#include "gpu_checks/oracle/oracle_cache.hpp"
#include "reference/cases/checksum.hpp"
#include "reference/forms/load_problem.hpp"
#include "reference/tensor/atomic_file.hpp"
#include "reports/check_record.hpp"
#include "reports/html.hpp"
#include "reports/record_file.hpp"
#include "reports/record_journal.hpp"
#include "reports/summary.hpp"

namespace attest {
namespace {

struct CheckArguments {
  std::string kernel, op, output, json;
  std::vector<std::string> inputs, cases, shapes;
  std::optional<std::uint64_t> seed;
  bool unit_keys = false, whole = false;
  int threads = 0, workers = 1;
  std::string check;
  bool battery = false, quick = false, full = false, mutants = false, resume = false;
  std::optional<Shard> shard;
};

std::string one_of_the_operators() {
  std::string names;
  for (const Operator* op : all_operators())
    if (op->declaration().variant == "masked") names += ' ' + op->declaration().name;
  return names;
}

// The kernels of each operator and variant, in their order.
std::vector<std::vector<const Kernel*>> kernels_by_operator(const CheckArguments& arguments) {
  const auto found = find_kernels(arguments.kernel, arguments.op);
  if (found.empty())
    throw BadInput(no_kernel_matches(arguments.kernel, arguments.op,
                                     "cpu.hla2.* or of the operators" + one_of_the_operators()));
  std::vector<std::vector<const Kernel*>> groups;
  for (const Kernel* kernel : found) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g[0]->op == kernel->op && g[0]->variant == kernel->variant;
    });
    if (group == groups.end())
      groups.push_back({kernel});
    else
      group->push_back(kernel);
  }
  return groups;
}

// T/4, T/2, T without zeros and repetitions.
std::vector<Index> lengths_up_to(Index tokens, bool whole) {
  if (whole || tokens < 2) return {tokens};
  std::vector<Index> lengths;
  for (const Index length : {tokens / 4, tokens / 2, tokens})
    if (length > 0 && (lengths.empty() || lengths.back() != length)) lengths.push_back(length);
  return lengths;
}

// The fields that the operator needs and the file lacks.
std::string lacking(const SafetensorsFile& file, const Declaration& declaration) {
  if (declaration.gates && !file.has("g") && !file.has("alpha")) return "g";
  if (declaration.beta && !file.has("beta")) return "beta";
  if (declaration.level_scales && !file.has("level_scales")) return "level_scales";
  return "";
}

struct Plan {
  std::vector<CheckSource> sources;
  std::vector<Checked> left_out;  // the file lacks a field
  std::set<std::uint64_t> seeds;  // of what was drawn

  // The seed of all that was drawn, where there is one.
  std::optional<std::uint64_t> seed() const {
    return seeds.size() == 1 ? std::optional(*seeds.begin()) : std::nullopt;
  }
};

void add_file(const std::string& path, const CheckArguments& arguments, Plan& plan) {
  const SafetensorsFile file(path);
  const std::string checksum = file_checksum(path);
  for (const auto& kernels : kernels_by_operator(arguments)) {
    const Declaration& declaration = operator_named(kernels[0]->op, kernels[0]->variant).declaration();
    CheckSource source;
    source.kernels = kernels;
    source.input.op = declaration.name, source.input.variant = declaration.variant, source.input.input = path;
    source.input.checksum = checksum;
    source.input.unit_keys = arguments.unit_keys && needs_unit_keys(declaration);
    if (const std::string field = lacking(file, declaration); !field.empty()) {
      for (const Kernel* kernel : kernels) {
        Checked& checked = plan.left_out.emplace_back();
        checked.kernel = kernel, checked.input = source.input,
        checked.reason = path + " has no field " + field;
      }
      continue;
    }
    source.problem = problem_of(source.input, declaration);
    note_inputs(source.problem.fields, path);
    source.lengths =
        lengths_up_to(source.problem.tokens, arguments.whole || !source.problem.cu_seqlens.empty());
    source.input.tokens = source.lengths.back();
    plan.sources.push_back(std::move(source));
  }
}

bool given(const std::vector<std::string>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

constexpr const char* drawn_with_unit_keys =
    "unit_keys=false: the delta rules are drawn with unit keys, without which their state grows beyond "
    "bounds";

// Keys that would change nothing are refused.
void refuse_without_effect(const std::string& shape, const std::vector<std::string>& keys, const Case& c,
                           const std::vector<const Declaration*>& declarations) {
  const auto none = [&](auto takes) { return std::none_of(declarations.begin(), declarations.end(), takes); };
  const std::string where = "--shape " + in_quotes(shape) + ": ";
  if (given(keys, "gates") && none([&](const Declaration* d) {
        return d->gates || d->beta || d->level_scales || (d->decay && !c.options.decay);
      }))
    throw BadInput(where + "gates=" + c.gates +
                   ": none of the chosen operators draws gates, beta, level scales or decay");
  if (given(keys, "unit_keys") && !c.unit_keys &&
      !none([](const Declaration* d) { return needs_unit_keys(*d); }))
    throw BadInput(where + drawn_with_unit_keys);
}

void add_shape(const std::string& shape, std::optional<std::uint64_t> seed, std::uint64_t fresh,
               const CheckArguments& arguments, Plan& plan) {
  Case drawn;
  const std::vector<std::string> keys = set_from_list(drawn, shape, "--shape");
  if (!drawn.drawn())
    throw BadInput("--shape " + in_quotes(shape) + ": input= is read, expected --input FILE or --case");
  if (!given(keys, "seed"))
    require_seed(arguments.shard, seed), drawn.seed = seed.value_or(fresh);
  else if (seed && *seed != drawn.seed)
    throw BadInput(fmt::format("--shape {}: seed={} beside --seed {}, expected one seed", in_quotes(shape),
                               drawn.seed, *seed));
  note_options(drawn.options);
  std::vector<const Declaration*> declarations;
  for (const auto& kernels : kernels_by_operator(arguments)) {
    if (given(keys, "variant") && kernels[0]->variant != drawn.variant) continue;
    CheckSource source;
    source.kernels = kernels;
    source.input = drawn;
    source.input.op = kernels[0]->op, source.input.variant = kernels[0]->variant;
    source.lengths = lengths_up_to(*source.input.tokens, arguments.whole || !source.input.packed.empty());
    declarations.push_back(&operator_named(source.input.op, source.input.variant).declaration());
    plan.sources.push_back(std::move(source));
  }
  if (declarations.empty())
    throw BadInput(fmt::format("--shape {}: no kernel of --kernel {} --operator {} computes variant={}",
                               in_quotes(shape), in_quotes(arguments.kernel), in_quotes(arguments.op),
                               printable(drawn.variant, 80)));
  refuse_without_effect(shape, keys, drawn, declarations);
  plan.seeds.insert(drawn.seed);
}

void add_case(const std::string& line, const CheckArguments& arguments, Plan& plan) {
  CheckSource source;
  source.input = parse_case(line);
  const Operator& op = operator_named(source.input.op, source.input.variant);
  for (const Kernel* kernel : find_kernels(arguments.kernel, arguments.op))
    if (kernel->op == source.input.op && kernel->variant == source.input.variant)
      source.kernels.push_back(kernel);
  if (source.kernels.empty())
    throw BadInput(fmt::format("no kernel matches --kernel {} --operator {} and computes {} ({})",
                               in_quotes(arguments.kernel), in_quotes(arguments.op), source.input.op,
                               source.input.variant));
  if (source.input.drawn()) {
    if (line.find("unit_keys=false") != std::string::npos && needs_unit_keys(op.declaration()))
      throw BadInput("--case " + in_quotes(line) + ": " + drawn_with_unit_keys);
    plan.seeds.insert(source.input.seed);
  } else {
    verify_checksum(source.input);
    source.problem = problem_of(source.input, op.declaration());
    note_inputs(source.problem.fields, source.input.input);
  }
  note_options(source.input.options);
  source.lengths = {source.input.drawn() ? *source.input.tokens : source.problem.tokens};
  plan.sources.push_back(std::move(source));
}

Run describe_run(std::optional<std::uint64_t> seed) {
  Run run;
  run.command = invoked_command_without("--resume"), run.seed = seed;
  const BuildFacts& build = build_facts();
  run.commit = build.commit, run.compiler = build.compiler, run.flags = build.flags;
  run.libraries = {{"attest", build.version}, {"mpfr", mpfr_get_version()}, {"gmp", gmp_version}};
  run.started = time_now();
  return run;
}

// One line on a terminal, rewritten.
class Progress {
 public:
  void show(Index done, Index total) {
    if (!terminal_) return;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double left = elapsed / static_cast<double>(done) * static_cast<double>(total - done);
    std::cerr << fmt::format("\r\033[Kchecked {} of {}, about {:.0f} s left", done, total, left)
              << std::flush;
  }
  void clear() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A folder made for the results, removed again when nothing was put into it.
class Folder {
 public:
  explicit Folder(const std::filesystem::path& path) : path_(path) {
    std::error_code error;
    made_ = std::filesystem::create_directories(path, error);
    if (error || !std::filesystem::is_directory(path))
      throw BadInput("--output " + in_quotes(path.native()) + ": cannot be made (" +
                     (error ? error.message() : "not a folder") + "), expected a folder to write to");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code not_empty;
    if (made_) std::filesystem::remove(path_, not_empty);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

// What a case is drawn or read from, without what differs between the operators and lengths of one --shape.
std::string input_text(const std::string& case_line) {
  std::istringstream words(case_line);
  std::string text, word;
  for (words >> word; words >> word;) {
    bool inner = false;
    for (const char* key : {"variant=", "T=", "checksum=", "unit_keys="})
      inner = inner || word.starts_with(key);
    if (!inner) text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// The cases of a run, in the order of their records: those left out, then those with an index. Which of them are in a
// shard: whole groups that share an evaluation of the oracle, so that each is made once.
class Share {
 public:
  Share(const std::optional<Shard>& shard, const Plan& plan)
      : shard_(shard), left_out_(static_cast<Index>(plan.left_out.size())) {
    if (shard) groups_ = oracle_groups(plan.sources);
    cases_ = left_out_ + case_count(plan.sources);
    for (Index i = 0; i < cases_; ++i) own_ += i < left_out_ ? holds_left_out(i) : holds(i - left_out_);
  }
  bool holds_left_out(Index index) const { return !shard_ || shard_->holds(index); }
  bool holds(Index index) const { return !shard_ || shard_->holds(groups_[static_cast<std::size_t>(index)]); }
  std::optional<std::int64_t> record_index(Index among_all) const {
    return shard_ ? std::optional<std::int64_t>(among_all) : std::nullopt;
  }
  Index left_out() const { return left_out_; }
  Index cases() const { return cases_; }
  Index own() const { return own_; }

 private:
  std::optional<Shard> shard_;
  Index left_out_ = 0, cases_ = 0, own_ = 0;
  std::vector<Index> groups_;
};

// Which run this is, for --resume.
RunIdentity identity_of(const Plan& plan, std::uint64_t seed) {
  std::string cases;
  for (const CheckSource& source : plan.sources) {
    cases += to_text(source.input) + '\n' + fmt::format("{}\n", fmt::join(source.lengths, " "));
    for (const Kernel* k : source.kernels) cases += kernel_identity(*k);
  }
  for (const Checked& checked : plan.left_out)
    cases += to_text(checked.input) + '\n' + kernel_identity(*checked.kernel);
  return {invoked_command_without("--resume"), seed, program_version(), sha256(cases)};
}

// Everything that a finished check is written to: opened before the work starts, put in place together at its end. Of a
// case no more is kept in memory than what the terminal still has to say; the journal has the rest.
class Outputs {
 public:
  Outputs(const CheckArguments& arguments, const Plan& plan, std::uint64_t seed)
      : seeds_(plan.seeds), share_(arguments.shard, plan) {
    run_ = describe_run(plan.seed());
    const RunIdentity identity = identity_of(plan, seed);
    if (arguments.shard)
      run_.shard = shard_of_run(*arguments.shard, share_.cases(), identity.version, identity.cases_sha256);
    for (const CheckSource& source : plan.sources) inputs_.insert(input_text(to_text(source.input)));
    for (const std::string& input : arguments.inputs)
      refuse_same_file("--json", arguments.json, "--input", input);
    if (!arguments.json.empty()) json_ = std::make_unique<AtomicFile>(arguments.json);
    if (arguments.output.empty()) return;
    folder_ = std::make_unique<Folder>(arguments.output);
    for (const char* name : {"records.jsonl", "index.html", journal_name}) {
      const std::string path = (*folder_ / name).string();
      refuse_same_file("--json", arguments.json, "--output's " + std::string(name), path);
      for (const std::string& input : arguments.inputs)
        refuse_same_file("--output's " + std::string(name), path, "--input", input);
    }
    page_ = std::make_unique<AtomicFile>(*folder_ / "index.html");
    writer_ = std::make_unique<RecordWriter>(*folder_ / "records.jsonl", run_);
    journal_ = std::make_unique<RecordJournal>(*folder_ / journal_name, identity, arguments.resume);
    known_.resize(static_cast<std::size_t>(case_count(plan.sources)));
    for (std::size_t i = 0; i < known_.size(); ++i) known_[i] = journal_->holds(static_cast<Index>(i));
    resumed_ = arguments.resume;
  }

  // After what was left out: what an earlier run has found.
  void start() {
    if (run_.shard)
      std::cout << fmt::format("shard {}: {} of {} cases\n", to_text(*run_.shard), share_.own(),
                               share_.cases());
    if (resumed_)
      std::cout << fmt::format("resumed: {} of {} cases were checked before\n",
                               std::count(known_.begin(), known_.end(), true), share_.own() - left_out_own_);
    drain();
  }

  // Whether the case is another shard's, or the journal of an earlier run holds it.
  bool known(Index index) const {
    return !share_.holds(index) || (!known_.empty() && known_[static_cast<std::size_t>(index)]);
  }

  // A case that was not among those with an index, number `at` of them.
  void add_left_out(Index at, const Checked& checked) {
    if (!share_.holds_left_out(at)) return;
    ++left_out_own_;
    left_out_.push_back(to_record(checked, invoked_program()));
    left_out_.back().index = share_.record_index(at);
    show(left_out_.back());
  }

  void add(Index index, const Checked& checked) {
    CaseRecord record = to_record(checked, invoked_program());
    record.index = share_.record_index(share_.left_out() + index);
    if (journal_)
      journal_->add(index, record);
    else
      waiting_.emplace(index, std::move(record));
    drain();
  }

  int finish() {
    print_line();
    summarise();
    if (writer_) {
      counts_ = writer_->close(time_now());
      page_->write(render_html(for_page(), {.title = "attest check"}));
    }
    if (json_) json_->write(verdicts().dump(1) + "\n");
    if (json_) json_->commit();
    if (writer_) {
      page_->commit();
      writer_->commit();
      journal_.reset();
      std::cout << "records: " << (*folder_ / "records.jsonl").string()
                << "\npage:    " << (*folder_ / "index.html").string() << '\n';
    }
    return exit_of(counts_.pass, counts_.fail, counts_.suspect + counts_.undecided);
  }

 private:
  // Cases whose turn has come, in the order of their indices.
  void drain() {
    for (; share_.left_out() + next_ < share_.cases(); ++next_) {
      if (!share_.holds(next_)) continue;
      if (journal_) {
        if (!journal_->holds(next_)) return;
        show(journal_->read(next_));
      } else {
        const auto found = waiting_.find(next_);
        if (found == waiting_.end()) return;
        show(std::move(found->second));
        waiting_.erase(found);
      }
    }
  }

  void show(CaseRecord record) {
    counts_.count(record.verdict);
    if (!line_.empty() && (line_[0].kernel.name != record.kernel.name ||
                           input_text(line_[0].case_line) != input_text(record.case_line)))
      print_line();
    if (writer_) writer_->add(record);
    if (json_) kernels_.push_back(verdict_of(record));
    count(record);
    record.curve.clear();
    line_.push_back(std::move(record));
  }

  void count(const CaseRecord& record) {
    const std::string title = operator_title(record.kernel);
    if (!by_operator_.contains(title)) operators_.push_back(title);
    by_operator_[title].count(record.verdict);
    if (record.verdict == Verdict::undecided) {
      CaseRecord& reason = undecided_.cases.emplace_back();
      reason.verdict = record.verdict, reason.reason = record.reason, reason.kernel.name = record.kernel.name;
    }
    if (!record.time) return;
    kernel_ns_ += record.time->kernel_ns;
    judging_ns_ += std::max<std::int64_t>(0, record.time->total_ns - record.time->kernel_ns);
  }

  static void print_columns(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << '\n';
  }
  static constexpr const char* columns = "{:<9}  {:<43}  {:<36}  {:>7}  {:>8}  {:>8}  {}";

  void print_header() {
    if (header_printed_) return;
    header_printed_ = true;
    std::cout << "error/bound: of each T, above 1 is a failure. Worst over these T: power, the share of the "
                 "elements "
                 "whose bound is below\n|o|/4 (below 50 % nothing is claimed); ulps of the output format; "
                 "relative L2 "
                 "error of o, of the worst sequence and head\n";
    print_columns(fmt::format(columns, "verdict", "kernel", "error/bound", "power", "ulps", "L2", "reason"));
  }

  // One line for the cases of one kernel on one input: the worst verdict and its reason, error over bound at each T, the
  // least power and the largest errors.
  void print_line() {
    if (line_.empty()) return;
    print_header();
    if (const std::string input = input_text(line_[0].case_line); inputs_.size() > 1 && input != last_input_)
      std::cout << "input: " << printable(last_input_ = input, 400) << '\n';
    const CaseRecord* worst = line_.data();
    std::string lengths;
    std::optional<double> power, ulps, norm;
    std::size_t not_run = 0;
    std::string why_not;
    for (const CaseRecord& record : line_) {
      const bool longer = record.verdict == Verdict::undecided && worst->verdict == Verdict::undecided;
      if (longer || severity(record.verdict) > severity(worst->verdict)) worst = &record;
      if (record.verdict == Verdict::not_run && ++not_run == 1) why_not = record.reason;
      const auto* tensor = measured_tensor(record);
      const bool bounded = tensor && tensor->second.bounded;
      lengths += fmt::format("T={} {:<8} ", record.tokens.value_or(0),
                             bounded ? digits(tensor->second.ratio.max) : "-");
      for (const auto& [name, error] : record.error) {
        if (error.bounded) power = std::min(power.value_or(1), error.power);
        if (!ulps || worse_number(error.ulp.max, *ulps)) ulps = error.ulp.max;
        if (error.norm && (!norm || worse_number(*error.norm, *norm))) norm = error.norm;
      }
    }
    std::string reason = worst->reason;
    if (not_run > 0 && worst->verdict != Verdict::not_run)
      reason += fmt::format("{}{} of {} cases not run: {}", reason.empty() ? "" : "; ", not_run, line_.size(),
                            why_not);
    const auto shown = [](const std::optional<double>& value) { return value ? digits(*value) : "-"; };
    print_columns(fmt::format(columns, verdict_words(worst->verdict), worst->kernel.name, lengths,
                              power ? percent(*power) : "-", shown(ulps), shown(norm), reason));
    if (severity(worst->verdict) >= severity(Verdict::suspect)) print_where(*worst);
    line_.clear();
  }

  static void print_where(const CaseRecord& record) {
    if (record.locate && !in_words(*record.locate).empty())
      std::cout << fmt::format("           where:  T={}: {}\n", record.tokens.value_or(0),
                               in_words(*record.locate));
    if (!record.worst.empty()) {
      const WorstElement& w = record.worst[0];
      std::cout << fmt::format("           worst:  {} is {}, expected {:.6g}, error/bound {}\n",
                               index_text(w), std::isnan(w.got) ? "NaN" : fmt::format("{:.6g}", w.got),
                               w.expected, digits(w.ratio));
    }
    std::cout << "           replay: " << replay_of(record) << '\n';
  }

  void summarise() const {
    std::cout << fmt::format("\n{:<26}{:>7}{:>7}{:>7}{:>9}{:>11}{:>9}\n", "operator", "cases", "pass", "fail",
                             "suspect", "undecided", "not run");
    const auto row = [](const std::string& title, const End& c) {
      std::cout << fmt::format("{:<26}{:>7}{:>7}{:>7}{:>9}{:>11}{:>9}\n", title, c.cases, c.pass, c.fail,
                               c.suspect, c.undecided, c.not_run);
    };
    for (const std::string& title : operators_) row(title, by_operator_.at(title));
    row("all", counts_);
    for (const UndecidedReason& reason : undecided_reasons(undecided_))
      std::cout << fmt::format("undecided, {}: {} case{} of {} kernel{}\n", printable(reason.kind, 200),
                               reason.cases, reason.cases == 1 ? "" : "s", reason.kernels,
                               reason.kernels == 1 ? "" : "s");
    std::cout << times_text(oracle_cache(), kernel_ns_, judging_ns_) << '\n';
    const std::vector<std::uint64_t> seeds(seeds_.begin(), seeds_.end());
    if (seeds.size() > 8)
      std::cout << fmt::format("{} seeds, {} .. {}\n", seeds.size(), seeds.front(), seeds.back());
    else if (!seeds.empty())
      std::cout << fmt::format("seed {}\n", fmt::join(seeds, ", "));
  }

  // All cases once more, of many no more than a page shows.
  Records for_page() const {
    Records records{run_, left_out_, counts_, true};
    const auto total = static_cast<std::size_t>(counts_.cases);
    const std::size_t points =
        std::clamp<std::size_t>(200'000 / std::max<std::size_t>(total, 1), 16, curve_limit);
    for (Index i = 0; i < static_cast<Index>(known_.size()); ++i) {
      if (!share_.holds(i)) continue;
      CaseRecord record = journal_->read(i);
      record.curve = thin_curve(record.curve, points);
      if (total > 1000 && record.worst.size() > 1) record.worst.resize(1);
      if (total > 1000 && record.verdict == Verdict::pass)
        for (Check& check : record.checks) check.worst.reset();
      records.cases.push_back(std::move(record));
    }
    return records;
  }

  static nlohmann::json verdict_of(const CaseRecord& record) {
    nlohmann::json entry{
        {"kernel", record.kernel.name}, {"case", record.case_line}, {"verdict", to_string(record.verdict)}};
    if (!record.reason.empty()) entry["reason"] = record.reason;
    if (const auto error = record.error.find("o"); error != record.error.end()) {
      if (error->second.bounded)
        entry["ratio"] = error->second.ratio.max, entry["power"] = error->second.power;
      entry["ulps"] = error->second.ulp.max;
      if (error->second.norm) entry["relative_l2"] = *error->second.norm;
    }
    if (!record.checks.empty()) entry["replay"] = record.checks[0].replay;
    return entry;
  }

  nlohmann::json verdicts() const {
    nlohmann::json document{{"schema", "attest.check/1"}, {"cases", counts_.cases},
                            {"pass", counts_.pass},       {"fail", counts_.fail},
                            {"suspect", counts_.suspect}, {"undecided", counts_.undecided},
                            {"not_run", counts_.not_run}, {"kernels", kernels_}};
    if (run_.seed) document["seed"] = *run_.seed;
    if (run_.shard) document["shard"] = to_text(*run_.shard);
    return document;
  }

  std::set<std::uint64_t> seeds_;
  Share share_;
  std::set<std::string> inputs_;
  Run run_;
  End counts_;
  std::vector<bool> known_;
  std::vector<CaseRecord> left_out_, line_;
  std::map<Index, CaseRecord> waiting_;  // without a journal: finished, and their turn has not come
  Index next_ = 0, left_out_own_ = 0;
  bool header_printed_ = false, resumed_ = false;
  std::string last_input_;
  std::map<std::string, End> by_operator_;
  std::vector<std::string> operators_;
  Records undecided_;
  std::int64_t kernel_ns_ = 0, judging_ns_ = 0;
  nlohmann::json kernels_ = nlohmann::json::array();
  std::unique_ptr<Folder> folder_;
  std::unique_ptr<AtomicFile> json_, page_;
  std::unique_ptr<RecordWriter> writer_;
  std::unique_ptr<RecordJournal> journal_;
};

// The same inputs with the d and dv that each kernel admits next to them.
void fit_to_limits(Plan& plan) {
  std::vector<CheckSource> fitted;
  for (const CheckSource& source : plan.sources) {
    std::map<std::pair<Index, Index>, CheckSource> parts;
    for (const Kernel* kernel : source.kernels) {
      const std::pair sizes{drawn_within(kernel->limits, "d", source.input.key_dim),
                            drawn_within(kernel->limits, "dv", source.input.value_dim)};
      const auto [part, is_new] = parts.try_emplace(sizes, source);
      if (is_new) part->second.kernels.clear();
      part->second.kernels.push_back(kernel);
      std::tie(part->second.input.key_dim, part->second.input.value_dim) = sizes;
    }
    for (auto& [sizes, part] : parts) fitted.push_back(std::move(part));
  }
  plan.sources = std::move(fitted);
}

Plan plan_of(const CheckArguments& arguments, std::uint64_t fresh) {
  if (arguments.unit_keys && arguments.inputs.empty())
    throw BadInput("--unit-keys: has an effect on --input alone, expected --input FILE");
  if (arguments.whole && !arguments.cases.empty() && arguments.inputs.empty() && arguments.shapes.empty())
    throw BadInput("--whole: a case is checked at its own T alone, expected --input or --shape beside it");
  Plan plan;
  for (const std::string& path : arguments.inputs) add_file(path, arguments, plan);
  for (const std::string& line : arguments.cases) add_case(line, arguments, plan);
  std::vector<std::string> shapes = arguments.shapes;
  const bool by_default = arguments.inputs.empty() && arguments.cases.empty() && shapes.empty();
  if (by_default) shapes = {"T=128,d=32,dv=32,H=2"};
  for (const std::string& shape : shapes) add_shape(shape, arguments.seed, fresh, arguments, plan);
  if (by_default) fit_to_limits(plan);
  if (arguments.seed && shapes.empty()) note("--seed has no effect: it is of --shape");
  if (plan.sources.empty()) throw BadInput("no kernel can run: " + plan.left_out.at(0).reason);
  return plan;
}

// Of the largest source, as far as its values go.
std::string largest_case(const Plan& plan) {
  const auto size = [](const CheckSource& s) {
    return s.input.drawn() ? static_cast<double>(*s.input.tokens) * s.input.heads * s.input.batch *
                                 (s.input.key_dim + s.input.value_dim)
                           : static_cast<double>(s.problem.tokens) * s.problem.heads * s.problem.batch *
                                 (s.problem.key_dim + s.problem.value_dim);
  };
  const auto largest = std::max_element(plan.sources.begin(), plan.sources.end(),
                                        [&](const auto& a, const auto& b) { return size(a) < size(b); });
  return to_text(largest->input);
}

// --battery, --quick, --full, --check and --mutants; none: the value check on inputs of the user's choice.
std::optional<int> run_battery_modes(const CheckArguments& arguments) {
  if (!arguments.battery && !arguments.quick && !arguments.full && !arguments.mutants &&
      arguments.check.empty())
    return std::nullopt;
  if (!arguments.inputs.empty() || !arguments.cases.empty() || !arguments.shapes.empty())
    throw BadInput("the battery draws its own inputs, expected no --input, --case or --shape beside it");
  if (arguments.quick && arguments.full) throw BadInput("--quick and --full: expected one of the two");
  const BatteryArguments battery{arguments.kernel,
                                 arguments.op,
                                 arguments.check,
                                 arguments.output,
                                 arguments.json,
                                 arguments.seed,
                                 arguments.full ? Effort::full : Effort::quick,
                                 arguments.threads,
                                 arguments.resume,
                                 arguments.shard,
                                 arguments.workers};
  require_seed(arguments.shard, arguments.seed);
  if (arguments.mutants) return check_mutants(battery, program_version());
  return check_battery(battery, describe_run(arguments.seed), program_version());
}

// Blocks of this size and more are mapped and given back, smaller ones, such as the states of a head with d = dv = 128 over
// and over in a bound, kept for the next.
void keep_memory_flat() {
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

int run_check(const CheckArguments& arguments) {
  keep_memory_flat();
  if (arguments.resume && (arguments.output.empty() || arguments.mutants))
    throw BadInput(arguments.mutants
                       ? "--resume: not of --mutants, whose matrix is made as a whole"
                       : "--resume: continues what --output DIR holds, expected --output beside it");
  if (const auto code = run_battery_modes(arguments)) return *code;
  const std::uint64_t seed = seed_of_run(arguments.seed, arguments.resume, arguments.output);
  const Plan plan = plan_of(arguments, seed);
  Outputs outputs(arguments, plan, seed);
  for (std::size_t i = 0; i < plan.left_out.size(); ++i)
    outputs.add_left_out(static_cast<Index>(i), plan.left_out[i]);
  outputs.start();
  Progress progress;
  CheckListener listener;
  listener.known = [&](Index index) { return outputs.known(index); };
  listener.finished = [&](Index index, const Checked& checked) {
    progress.clear();
    outputs.add(index, checked);
  };
  Index open = 0;
  for (Index i = 0; i < case_count(plan.sources); ++i) open += outputs.known(i) ? 0 : 1;
  LastWords last_words(
      open, "cases",
      arguments.output.empty() ? "; with --output DIR, --resume would go on" : "; --resume goes on");
  listener.progress = [&](Index done, Index total) {
    last_words.done(done);
    progress.show(done, total);
  };
  try {
    check(plan.sources, arguments.threads, listener);
  } catch (const std::bad_alloc&) {
    throw BadInput("not enough memory, the largest case is '" + largest_case(plan) +
                   "': expected smaller T, H, B, d or dv, or fewer --threads");
  }
  progress.clear();
  return outputs.finish();
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("check", "judge kernels against the oracle; writes records and a page");
  auto arguments = std::make_shared<CheckArguments>();
  const auto doors = add_door_options(*command);
  add_devices(*command, doors, "kernels");
  add_whole_number(command, "--workers", doors->workers, 1, 1024,
                   "workers of a plug-in or process on each device: as many kernels, or checks of the only "
                   "one, are judged at a time (1)");
  command->add_option("--kernel", arguments->kernel,
                      "glob of kernel names, such as cpu.hla2.*; all by default");
  command->add_option("--operator", arguments->op, "glob of operators, such as *delta; all by default");
  command
      ->add_option("--input", arguments->inputs,
                   "safetensors file as of attest reference; its first T/4, T/2 and T tokens are checked "
                   "(packed sequences at T "
                   "alone). Repeatable")
      ->allow_extra_args(false);
  command->add_option("--case", arguments->cases, "a case line, as reports print it. Repeatable")
      ->allow_extra_args(false);
  command
      ->add_option("--shape", arguments->shapes,
                   "drawn inputs: T=256,d=32,dv=32,H=2 and other keys of a case line (variant, B, Hk, "
                   "recipe, gates, decay, seed ...), with commas or spaces between them; T/4, T/2 and T "
                   "tokens are checked (packed sequences at T alone). Repeatable; without any input "
                   "T=128,d=32,dv=32,H=2, or the next d and dv that the kernel takes")
      ->allow_extra_args(false);
  command->add_flag("--unit-keys", arguments->unit_keys,
                    "with --input: q and k of the delta rules divided by their l2 norm, without which their "
                    "state grows beyond bounds (drawn ones always are)");
  command->add_flag("--whole", arguments->whole, "T tokens only, not T/4 and T/2; of --input and --shape");
  command->add_flag("--battery", arguments->battery,
                    "all checks of the battery on inputs of their own: lattice, paths, split, packing ...");
  command->add_flag("--quick", arguments->quick,
                    "the battery with few inputs of every kind, seconds for a kernel (the default effort)");
  command->add_flag("--full", arguments->full, "the battery with more inputs of every kind");
  command->add_option("--check", arguments->check,
                      "glob of the battery's checks, such as split; all by default");
  command->add_flag(
      "--mutants", arguments->mutants,
      "the kill matrix: which check rejects which deliberately wrong kernel (--kernel: a glob of them)");
  add_seed(command, arguments->seed, "of --shape and the battery; drawn and printed when not given");
  add_path(command, "--output", arguments->output,
           "folder for records.jsonl and index.html, made if it is not there");
  command->add_flag(
      "--resume", arguments->resume,
      "continues a run into --output's folder that was killed: the same command with --resume added");
  add_path(command, "--json", arguments->json, "also write the verdicts to this file");
  add_shard(command, arguments->shard,
            "the cases, or with --battery the kernels, with --mutants the mutants");
  add_threads(command, arguments->threads);
  command->footer(
      std::string(exit_codes) +
      "Kernels that could not run are listed as NOT RUN and count neither way.\n"
      "Inputs are rounded to the input format of a kernel's contract before both the kernel and the "
      "oracle see them, so that\nrounding them is no error of the kernel (attest reference rounds "
      "nothing). A file's packed sequences are checked whole.\n"
      "attest list --kernels and attest list --recipes say what there is.\n"
      "Example: attest check --kernel 'cpu.hla2.*' --shape T=256,d=32,dv=32,H=2 --seed 1 "
      "--output /tmp/report");
  command->callback([arguments, doors, &exit_code] {
    open_kernels(*doors);
    arguments->workers = static_cast<int>(all_workers(*doors));
    exit_code = run_check(*arguments);
  });
}

}  // namespace attest
