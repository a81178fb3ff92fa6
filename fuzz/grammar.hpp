// The grammar of inputs: what an operator's domains and a kernel's features and limits allow.
//   draw()    an input of the grammar with the sizes, edges of chunks, packings, options and gates at which kernels break
//   plain()   the yardstick: every choice uniform and independent, nothing known of chunks (tests/bench/fuzz.cpp)
//   mutate()  one to three small changes of an input
#pragma once
#include "fuzz/input.hpp"
#include "reference/cases/random.hpp"

namespace attest {

class Grammar {
 public:
  // value_alone: no other question, none of them tells how large an error is.
  explicit Grammar(const BatteryContext& context, bool value_alone = false);

  // tokens: so many, where the kernel takes them.
  FuzzInput draw(Random& random, std::optional<Index> tokens = {}) const;
  FuzzInput plain(Random& random) const;
  // Very many sums of few terms: among their single roundings some are all as large as they can be, and of one sign.
  FuzzInput few_roundings(Random& random) const;
  // A check that draws its own inputs: of this one the seed alone matters.
  FuzzInput of_battery(Question question, Random& random) const;
  FuzzInput mutate(FuzzInput input, Random& random) const;
  // Of q, k and v alone: what hill-climbing changes.
  FuzzInput mutate_values(FuzzInput input, Random& random) const;

 private:
  void draw_shape(FuzzInput& input, Random& random) const;
  void draw_options(FuzzInput& input, Random& random) const;
  void draw_gates(FuzzInput& input, Random& random) const;
  void draw_rare(FuzzInput& input, Random& random) const;
  void draw_square(FuzzInput& input, Random& random) const;
  void meet(FuzzInput& input, Random& random) const;
  void draw_structure(FuzzInput& input, Random& random) const;
  void pack(FuzzInput& input, Random& random) const;
  void spoil(FuzzInput& input, Random& random) const;
  Index most_work(const FuzzInput& input, Index least_work) const;
  void fit(FuzzInput& input, Index least_work = 0) const;
  Index any_tokens(Random& random) const;
  Question any_question(Random& random) const;

  const BatteryContext& context_;
  const Index chunk_;                // whose edges are looked at
  std::vector<Question> questions_;  // that can be asked, those of the battery last
};

}  // namespace attest
