// Golden values, made by an independent program: every case, through the command, in every form, must match exactly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "reference/forms/load_problem.hpp"
#include "reference/forms/operator.hpp"
#include "tests/cli/program.hpp"

namespace attest {
namespace {

using nlohmann::json;

json parsed(const std::filesystem::path& path) { return json::parse(text_of(path)); }

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> list;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden"))
    if (entry.path().extension() == ".json") list.push_back(entry.path());
  std::sort(list.begin(), list.end());
  return list;
}

void flatten(const json& value, std::vector<std::string>& texts) {
  if (value.is_array())
    for (const json& part : value) flatten(part, texts);
  else
    texts.push_back(value.get<std::string>());
}
std::vector<std::string> flat(const json& value) {
  std::vector<std::string> texts;
  flatten(value, texts);
  return texts;
}

// Golden inputs are dyadic, so the file of doubles holds them exactly.
Tensors fields_of(const json& inputs, const Declaration& declaration) {
  Tensors fields;
  for (const auto& [name, value] : inputs.items()) {
    const bool taken = (name != "alpha" || declaration.gates) && (name != "beta" || declaration.beta) &&
                       (name != "level_scales" || declaration.level_scales);
    if (!taken) continue;
    Tensor& tensor = fields[name];
    tensor.shape = {static_cast<Index>(value.size())};
    if (value[0].is_array()) tensor.shape.push_back(static_cast<Index>(value[0].size()));
    for (const std::string& text : flat(value)) {
      const Rational exact = *parse_rational(text);
      tensor.data.push_back(nearest_double(exact));
      EXPECT_EQ(rational_from(tensor.data.back()), exact);
    }
  }
  return fields;
}

std::string options_of(const json& options) {
  std::string text;
  for (const auto& [key, value] : options.items())
    text += fmt::format(" --option {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

std::vector<std::string> forms_of(const Declaration& declaration, const json& options) {
  std::vector<std::string> list{"--form direct", "--form fastest"};
  const bool segmented = declaration.decayed_scan || !options.contains("decay");
  for (const std::string& algebra : declaration.algebras)
    for (Form form : declaration.forms) {
      const bool needs_segments = form == Form::scan || form == Form::chunk;
      if (form == Form::direct || (needs_segments && !segmented)) continue;
      for (const Index width : form == Form::chunk ? std::vector<Index>{1, 2, 4, 8} : std::vector<Index>{1})
        list.push_back(fmt::format("--form {} --chunk {} --algebra {}", form_name(form), width, algebra));
      if (form == Form::chunk && !declaration.level_scales)
        list.push_back(fmt::format("--form chunk --chunk 3 --algebra {}", algebra));
    }
  return list;
}

// What differs between the command's exact values and the golden ones, over every form; how many runs there were.
int compare_case(const TemporaryFolder& folder, const json& inputs, const json& golden,
                 std::vector<std::string>& differences) {
  const std::string name = golden["operator"], variant = golden["variant"];
  const Declaration& declaration = operator_named(name, variant).declaration();
  write_fields(folder / "in.safetensors", fields_of(inputs, declaration));
  int runs = 0;
  for (const std::string& form : forms_of(declaration, golden["options"])) {
    const std::string line =
        fmt::format("reference {} --variant {} --input {} --output {} --json {} --precision exact {}{}", name,
                    variant, (folder / "in.safetensors").string(), (folder / "out.safetensors").string(),
                    (folder / "out.json").string(), form, options_of(golden["options"]));
    const ProgramRun run = run_attest(folder, line);
    ++runs;
    if (run.exit_code != 0 ||
        parsed(folder / "out.json")["tensors"]["o"]["values"].get<std::vector<std::string>>() !=
            flat(golden["o"]))
      differences.push_back(line + ": " + run.err);
  }
  return runs;
}

TEST(Golden, EveryCaseMatchesThroughTheCommandInEveryForm) {
  const TemporaryFolder folder;
  std::vector<std::string> differences;
  int cases = 0, runs = 0;
  for (const auto& path : golden_files()) {
    const json file = parsed(path);
    for (const json& golden : file["cases"])
      runs += compare_case(folder, file["inputs"], golden, differences), ++cases;
  }
  EXPECT_EQ(cases, 93);
  EXPECT_GT(runs, 600);
  EXPECT_TRUE(differences.empty()) << differences.size()
                                   << " differ, the first: " << (differences.empty() ? "" : differences[0]);
}

TEST(Golden, AChangedDigitFails) {
  const TemporaryFolder folder;
  const json file = parsed("tests/golden/golden_1.json");
  json golden = file["cases"][0];
  std::string& entry = golden["o"][2][1].get_ref<std::string&>();
  entry[0] = entry[0] == '1' ? '2' : '1';
  std::vector<std::string> differences;
  const int runs = compare_case(folder, file["inputs"], golden, differences);
  EXPECT_EQ(differences.size(), static_cast<std::size_t>(runs));
}

TEST(Golden, TheDefaultPrecisionIsWithinItsRadius) {
  const TemporaryFolder folder;
  for (const auto& path : golden_files()) {
    const json file = parsed(path);
    for (const json& golden : file["cases"]) {
      const std::string name = golden["operator"], variant = golden["variant"];
      write_fields(folder / "in.safetensors",
                   fields_of(file["inputs"], operator_named(name, variant).declaration()));
      const ProgramRun run = run_attest(
          folder, fmt::format("reference {} --variant {} --input {} --output {}{}", name, variant,
                              (folder / "in.safetensors").string(), (folder / "out.safetensors").string(),
                              options_of(golden["options"])));
      ASSERT_EQ(run.exit_code, 0) << run.err;
      const SafetensorsFile out(folder / "out.safetensors");
      const auto o = out.as_double("o"), low = out.as_double("o_low"), radius = out.as_double("o_radius");
      const std::vector<std::string> exact = flat(golden["o"]);
      ASSERT_EQ(o.size(), exact.size());
      for (std::size_t i = 0; i < o.size(); ++i) {
        const Rational truth = *parse_rational(exact[i]);
        EXPECT_EQ(o[i], nearest_double(truth));
        EXPECT_LE(abs(Rational(truth - rational_from(o[i]) - rational_from(low[i]))),
                  rational_from(radius[i]));
        EXPECT_LE(radius[i], std::ldexp(std::abs(o[i]), -100));
      }
    }
  }
}

}  // namespace
}  // namespace attest
