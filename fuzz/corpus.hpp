// Found inputs as text (schema attest.corpus/1), one a file, bit-identical on any machine; "#" begins a remark:
//   attest.corpus/1
//   # mutant.hla2.cross_dropped: 1 of 3 elements differ, ...
//   check value
//   kernel mutant.hla2.cross_dropped
//   case hla2 variant=masked T=3 d=1 dv=1 H=1 B=1 decay=1 recipe=gaussian gates=none seed=0
//   before 16              (left out where 0)
//   power q -14            (of what is drawn)
//   values zeros           (or drawn: by the recipe and the seed)
//   q[0,2,0,0] 0x1p+0
//   end 1                  (how many values)
#pragma once
#include <filesystem>

#include "fuzz/input.hpp"

namespace attest {

inline constexpr std::string_view corpus_schema = "attest.corpus/1";

struct CorpusCase {
  FuzzInput input;
  std::string kernel;  // that it was found on
  std::string remark;  // one line
  std::string file;    // where it was read from; empty: not from a file
};

std::string to_text(const CorpusCase& one);
// BadInput with "where: line N: found, expected".
CorpusCase parse_corpus_case(std::string_view text, const std::string& where);

CorpusCase read_corpus_case(
    const std::filesystem::path& file);  // "-": standard input. BadInput also where it cannot be read

struct Corpus {
  std::vector<CorpusCase> cases;     // by file name
  std::vector<std::string> skipped;  // why, a line for every file that cannot be read
};
// Every *.case below the folder. What cannot be read is skipped and stays where it is.
Corpus read_corpus(const std::filesystem::path& folder);
// BadInput for a folder that cannot be made or written to; makes it where it is missing.
void require_writable(const std::filesystem::path& folder, const std::string& option = "--corpus");
// Writes OPERATOR.CHECK.CHECKSUM.case; its path, empty if the folder holds that very case.
std::filesystem::path add_to_corpus(const std::filesystem::path& folder, const CorpusCase& one);

}  // namespace attest
