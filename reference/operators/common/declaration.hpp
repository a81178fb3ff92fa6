// What an operator states about itself. Generators, buffers, command-line checks and the documentation tables are
// derived from it.
#pragma once
#include <string>
#include <vector>

#include "reference/tensor/head.hpp"

namespace attest {

enum class Form { direct, stream, scan, chunk };

// A moment of the state; `normaliser` names its companion for v := 1 (empty: the moment carries no value column).
struct Moment {
  std::string name;
  bool value_columns = true;  // (key_dim, value_dim), else (key_dim, key_dim)
  std::string normaliser;
};

struct Declaration {
  std::string name, variant;
  std::string formula;  // one line, as the paper writes it
  std::string source;
  bool gates = false;  // takes g or alpha
  bool beta = false;
  bool level_scales = false;
  bool decay = false;  // takes the option or field decay
  bool ridge = false;
  bool normalize = false;                        // takes normalize and epsilon
  bool unit_scale = true;                        // scale defaults to 1, else to 1/sqrt(key_dim)
  int degree_q = 1, degree_k = 1, degree_v = 1;  // homogeneity of the unnormalised output; -1: none
  bool causal = true;
  bool exact = true;  // rational arithmetic decides it (no transcendental function)
  std::vector<Form> forms = {Form::direct, Form::stream, Form::scan, Form::chunk};
  bool decayed_scan = true;          // scan and chunk exist with decay != 1 too
  std::vector<Moment> moments = {};  // of the state, in the paper's order
  std::vector<std::string> algebras = {
      "direct"};  // algebraic forms of stream, scan and chunk, the first the default
};

}  // namespace attest
