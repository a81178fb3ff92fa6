// Deliberately wrong CUDA kernels: edits of the real ones, one compiled in with -DATTEST_MUTANT=number, each at the place
// where `is<Mutant::name>` stands in gpu_checks/kernels/cuda. Without it `is` is false at compile time and leaves no code.
// tests/cuda/judge_mutants.sh builds each and has the battery judge it. Families: ../FAMILIES.md; family 2 is met by the CPU
// mutants, and family 12 has no kernel here yet.
#pragma once
#include <array>

#ifndef ATTEST_MUTANT
#define ATTEST_MUTANT 0
#endif

namespace attest::cuda {

enum class Mutant : int {
  none = 0,
  tail_chunk_dropped = 1,
  tail_decay_full_chunk = 2,
  tail_dead_rows = 3,
  tail_last_row_unwritten = 4,
  mask_strict = 5,
  prefix_inclusive = 6,
  decay_power_low = 7,
  cross_dropped = 8,
  join_fades_swapped = 9,
  query_stands_still = 10,
  state_transposed = 11,
  third_moment_not_restored = 12,
  position_not_carried = 13,
  state_of_sequence_zero = 14,
  step_decay_low = 15,
  level_one_low = 16,
  level_not_cleared = 18,
  level_idle_undecayed = 19,
  level_top_unread = 20,
  packed_end_ignored = 21,
  packed_empty_unwritten = 22,
  packed_gates_from_zero = 23,
  gate_of_head_zero = 24,
  group_modulo = 25,
  extents_swapped = 26,
  tile_offset_missing = 27,
  index_token_16_bits = 28,
  index_block_16_bits = 29,
  state_bf16 = 30,
  gate_sum_bf16 = 31,
  gate_by_difference = 32,
  inverse_corner_missing = 33,
  warp_counted_twice = 34,
  segment_overlaps = 35,
  output_barrier_missing = 36,
  last_columns_skipped = 37,
  table_cached_by_pointer = 38,
  second_row_half_unwritten = 39,
  delta_beta_missing = 40,
  state_slot_shared = 41,
  sums_not_added = 42,
  columns_beyond = 43,
  scores_over_queries = 44,
  diagonal_block_skipped = 45,
  wide_keys_unfaded = 46,
  right_block_begins_late = 47,
  scores_rounded_in_pieces = 49,
};

template <Mutant mutant>
constexpr bool is = static_cast<int>(mutant) == ATTEST_MUTANT;

struct MutantInfo {
  Mutant mutant;
  const char* name;
  int family;
  const char* unit;    // the translation unit that is built with it
  const char* kernel;  // that is judged
  const char* wrong;
  // Or, where the quick battery cannot see it: a shape of `attest check`, late_path (tests/cuda/late_path.py), racecheck, or
  // unseen, with the reason in `wrong`.
  const char* judge = "battery";
};

// clang-format off
constexpr std::array<MutantInfo, 47> mutants{{
    {Mutant::tail_chunk_dropped, "tail_chunk_dropped", 1, "lin_wgmma", "cuda.hla2.masked.bf16", "T / C chunks: the partial last one is not run"},
    {Mutant::tail_decay_full_chunk, "tail_decay_full_chunk", 1, "lin_wgmma", "cuda.ahla.masked.bf16", "gates past the end decay the final state"},
    {Mutant::tail_dead_rows, "tail_dead_rows", 1, "delta_chunks", "cuda.gated_delta.masked.bf16", "rows past the end are fetched like the others"},
    {Mutant::tail_last_row_unwritten, "tail_last_row_unwritten", 1, "log_linear_chunks", "cuda.log_linear_mamba2.masked.bf16", "the last row of a partial chunk is not written"},
    {Mutant::mask_strict, "mask_strict", 3, "lin_wgmma", "cuda.linear.masked.bf16", "the token itself is masked in its chunk"},
    {Mutant::prefix_inclusive, "prefix_inclusive", 3, "lin_generic", "cuda.mamba2.masked.bf16", "a segment begins with its own state in place of those before it"},
    {Mutant::decay_power_low, "decay_power_low", 3, "operators", "cuda.hla2.masked.bf16", "the second pass decays by gamma, not gamma^2"},
    {Mutant::cross_dropped, "cross_dropped", 3, "recurrent", "cuda.hla2.masked.bf16", "G at the end of a call lacks S C"},
    {Mutant::join_fades_swapped, "join_fades_swapped", 3, "delta_levels", "cuda.log_linear_gated_delta.masked.bf16", "the left block's state is decayed by its own gates, not the right one's", "late_path"},
    {Mutant::query_stands_still, "query_stands_still", 3, "delta_levels", "cuda.log_linear_gated_delta.masked.bf16", "the transition of the nearer blocks is left out"},
    {Mutant::state_transposed, "state_transposed", 4, "lin_generic", "cuda.ahla.masked.bf16", "the initial state is read transposed"},
    {Mutant::third_moment_not_restored, "third_moment_not_restored", 4, "operators", "cuda.hla2.masked.bf16", "S and C are restored, G is not"},
    {Mutant::position_not_carried, "position_not_carried", 4, "recurrent", "cuda.log_linear_mamba2.masked.bf16", "levels start at position 0 after a hand-over"},
    {Mutant::state_of_sequence_zero, "state_of_sequence_zero", 4, "lin_generic", "cuda.mamba2.masked.bf16", "every sequence starts with the state of the first"},
    {Mutant::step_decay_low, "step_decay_low", 4, "step", "cuda.hla2.masked.bf16", "the decode step decays G by gamma, the prefill by gamma^2"},
    {Mutant::level_one_low, "level_one_low", 5, "log_linear_chunks", "cuda.log_linear.masked.bf16", "blocks of chunks are read with the level below"},
    {Mutant::level_not_cleared, "level_not_cleared", 5, "log_linear_chunks", "cuda.log_linear_mamba2.masked.bf16", "what becomes a pair of chunks is not cleared"},
    {Mutant::level_idle_undecayed, "level_idle_undecayed", 5, "log_linear_chunks", "cuda.log_linear_mamba2.masked.bf16", "a waiting block of four chunks does not decay"},
    {Mutant::level_top_unread, "level_top_unread", 5, "log_linear_chunks", "cuda.log_linear_mamba2.masked.bf16", "one level too few: the largest block is not read"},
    {Mutant::packed_end_ignored, "packed_end_ignored", 6, "lin_wgmma", "cuda.mamba2.masked.bf16", "the last chunk of a packed sequence runs into the next one"},
    {Mutant::packed_empty_unwritten, "packed_empty_unwritten", 6, "lin_generic", "cuda.mamba2.masked.bf16", "the state of an empty sequence is not written"},
    {Mutant::packed_gates_from_zero, "packed_gates_from_zero", 6, "delta_chunks", "cuda.gated_delta.masked.bf16", "gates are read from the start of the pack, not of the sequence"},
    {Mutant::gate_of_head_zero, "gate_of_head_zero", 7, "delta_chunks", "cuda.gated_delta.masked.bf16", "every head takes the gates of the first"},
    {Mutant::group_modulo, "group_modulo", 7, "lin_wgmma", "cuda.ahla.masked.bf16", "head h reads h % group, not h / group"},
    {Mutant::extents_swapped, "extents_swapped", 7, "lin_generic", "cuda.linear.masked.fp32", "states are indexed with the extents of keys and values swapped"},
    {Mutant::tile_offset_missing, "tile_offset_missing", 7, "lin_wgmma", "cuda.linear.masked.bf16", "the second 64 columns are written over the first"},
    {Mutant::index_token_16_bits, "index_token_16_bits", 8, "lin_wgmma", "cuda.linear.masked.bf16", "the number of a token in 16 bits"},
    {Mutant::index_block_16_bits, "index_block_16_bits", 8, "lin_generic", "cuda.linear.masked.fp32", "the block of the grid in 16 bits"},
    {Mutant::state_bf16, "state_bf16", 9, "lin_wgmma", "cuda.linear.masked.bf16", "the state is rounded to bf16 after every chunk"},
    {Mutant::gate_sum_bf16, "gate_sum_bf16", 9, "lin_wgmma", "cuda.mamba2.masked.bf16", "sums of log-gates in bf16"},
    {Mutant::gate_by_difference, "gate_by_difference", 9, "lin_wgmma", "cuda.mamba2.masked.fp16", "a sum of gates as the next one less its last term: a later token changes earlier bits (causality lets the gates of a chunk do that, which a right kernel may take its anchor from)", "unseen"},
    {Mutant::inverse_corner_missing, "inverse_corner_missing", 9, "delta_chunks", "cuda.delta.masked.bf16", "the triangular inverse lacks its last off-diagonal block"},
    {Mutant::warp_counted_twice, "warp_counted_twice", 10, "lin_generic", "cuda.linear.masked.fp32", "the partial sum of the first warp is added once for every further one"},
    {Mutant::segment_overlaps, "segment_overlaps", 10, "lin_generic", "cuda.mamba2.masked.fp32", "a segment's state takes the first token of the next as well"},
    {Mutant::output_barrier_missing, "output_barrier_missing", 10, "lin_wgmma", "cuda.linear.masked.bf16", "rows are read from shared memory before every warp has stored them", "racecheck"},
    {Mutant::last_columns_skipped, "last_columns_skipped", 11, "lin_wgmma", "cuda.linear.masked.bf16", "keys of 128 columns: the last 16 are left out of the scores", "T=128,d=128,dv=128,H=1"},
    {Mutant::table_cached_by_pointer, "table_cached_by_pointer", 11, "operators", "cuda.mamba2.masked.bf16", "the table of segments is kept as long as cu_seqlens has the same address (seen only where two packed calls of other boundaries happen to have it)", "unseen"},
    {Mutant::second_row_half_unwritten, "second_row_half_unwritten", 11, "delta_levels", "cuda.log_linear_gated_delta.masked.bf16", "the odd chunk of a pair is written only where it is whole"},
    {Mutant::state_slot_shared, "state_slot_shared", 10, "lin_wgmma", "cuda.mamba2.masked.bf16", "two blocks leave their states in one slot"},
    {Mutant::sums_not_added, "sums_not_added", 11, "lin_wgmma", "cuda.linear.masked.bf16", "keys of more than 128 columns: rows read the last piece of the state alone", "T=128,d=256,dv=64,H=1"},
    {Mutant::scores_rounded_in_pieces, "scores_rounded_in_pieces", 9, "lin_wgmma", "cuda.linear.masked.bf16", "keys of more than 128 columns: the scores of each piece are rounded by themselves", "T=64,d=256,dv=256,H=8"},
    {Mutant::columns_beyond, "columns_beyond", 7, "lin_wgmma", "cuda.mamba2.masked.bf16", "columns past the dimension are fetched like the others: those of the next head"},
    {Mutant::delta_beta_missing, "delta_beta_missing", 3, "delta_chunks", "cuda.gated_delta.masked.bf16", "beta is missing on the side of the values and keys"},
    {Mutant::scores_over_queries, "scores_over_queries", 10, "lin_mma", "cuda.linear.masked.bf16", "mma.sync: scores are stored over queries that not every warp has read", "racecheck"},
    {Mutant::wide_keys_unfaded, "wide_keys_unfaded", 3, "delta_wide", "cuda.gated_delta.masked.bf16", "256 columns: keys go into the state without the gates after them", "T=128,d=256,dv=256,H=1"},
    {Mutant::right_block_begins_late, "right_block_begins_late", 5, "delta_wide", "cuda.log_linear_gated_delta.masked.bf16", "the first chunk of a right block does not read the left one", "T=256,d=256,dv=256,H=1"},
    {Mutant::diagonal_block_skipped, "diagonal_block_skipped", 3, "lin_mma", "cuda.mamba2.masked.bf16", "mma.sync: the blocks of 16 on the diagonal are skipped with those above it"},
}};
// clang-format on

}  // namespace attest::cuda
