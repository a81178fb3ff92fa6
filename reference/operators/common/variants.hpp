// What an operator file registers: its variants, each a definition with, where it has them, alternative algebras
// of its stream, scan and chunk forms (the first definition is the one that declares the variant).
#pragma once

namespace attest {

template <class Definition, class... Alternatives>
struct Variant {};

template <class... V>
struct Variants {};

}  // namespace attest
