// What is on disk is what is registered, and what is declared is what the forms give.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "reference/forms/operator.hpp"

namespace attest {
namespace {

TEST(Registration, HasEveryOperatorFileOnDiskAndNoOther) {
  std::set<std::string> on_disk, registered;
  for (const auto& entry : std::filesystem::directory_iterator("reference/operators"))
    if (entry.path().extension() == ".hpp") on_disk.insert(entry.path().stem());
  for (const Operator* op : all_operators()) registered.insert(op->declaration().name);
  EXPECT_EQ(on_disk, registered);
  EXPECT_EQ(on_disk.size(), 12u);
}

TEST(Registration, FindsOperatorsByNameAndVariantAndNothingElse) {
  for (const Operator* op : all_operators())
    EXPECT_EQ(find_operator(op->declaration().name, op->declaration().variant), op);
  EXPECT_NE(find_operator("hla3", "printed"), nullptr);
  EXPECT_EQ(find_operator("hla4"), nullptr);
  EXPECT_EQ(find_operator("ahla", "printed"), nullptr);  // the printed segment defines no operator
}

TEST(Registration, DeclaresAFormulaASourceAndAMaskedVariantForEveryOperator) {
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    EXPECT_FALSE(d.formula.empty()) << d.name;
    EXPECT_FALSE(d.source.empty()) << d.name;
    EXPECT_NE(find_operator(d.name), nullptr) << d.name;
    EXPECT_FALSE(d.gates && d.decay) << d.name << ": one kind of attenuation";
  }
}

TEST(Registration, GivesExactlyTheDeclaredMomentsAsFinalState) {
  for (const Operator* op : all_operators()) {
    const Declaration& d = op->declaration();
    if (!d.exact) continue;
    Head<Rational> head;
    head.q = head.k = Matrix<Rational>(3, 2), head.v = Matrix<Rational>(3, 1);
    head.alpha = head.beta = std::vector<Rational>(3, Rational(1));
    head.level_scales = Matrix<Rational>(3, 4);
    for (Form form : d.forms) {
      std::set<std::string> declared, given;
      for (const auto& moment : d.moments) declared.insert(moment.name);
      for (const auto& [name, moment] : op->Evaluator<Rational>::evaluate(head, {form, 2, 0}).final.moments)
        given.insert(name);
      EXPECT_EQ(declared, given) << d.name << " " << d.variant << " " << form_name(form);
    }
  }
}

}  // namespace
}  // namespace attest
