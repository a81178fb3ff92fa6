#include "gpu_checks/mutants/mutants.hpp"

#include <fnmatch.h>

#include <sstream>

#include "gpu_checks/mutants/production.hpp"
#include "reference/forms/load_problem.hpp"

namespace attest {
namespace {

bool applies(const EditInfo& info, const std::string& op) {
  std::istringstream globs(info.operators);
  for (std::string glob; globs >> glob;)
    if (fnmatch(glob.c_str(), op.c_str(), 0) == 0) return true;
  return false;
}

// Mistakes of rounding that a kernel with bf16 operands can make as well.
bool also_in_bf16(Edit edit) {
  return edit == Edit::round_state_bf16 || edit == Edit::round_before_subtraction ||
         edit == Edit::round_output_down || edit == Edit::round_accumulate_bf16 ||
         edit == Edit::inverse_powers_bf16;
}

}  // namespace

const std::vector<EditInfo>& edits() {
  static const std::vector<EditInfo> list = {
      {Edit::tail_state_dead_rows, "tail_state_dead_rows", 1, "*",
       "the state sums k and v over rows past the end"},
      {Edit::tail_gate_dead_rows, "tail_gate_dead_rows", 1, "gated_delta log_linear_*",
       "gates past the end decay the final state"},
      {Edit::tail_decay_full_chunk, "tail_decay_full_chunk", 1, "hla2 ahla hla3",
       "the final state is decayed by gamma^C instead of gamma^(T mod C)"},
      {Edit::tail_chunk_dropped, "tail_chunk_dropped", 1, "*",
       "T / C chunks: the partial last one is not run"},
      {Edit::tail_last_row_dropped, "tail_last_row_dropped", 1, "*",
       "the last row of a partial chunk is not written"},
      {Edit::tail_state_without_partial, "tail_state_without_partial", 1, "*",
       "the final state lacks the partial chunk"},
      {Edit::tail_extra_chunk, "tail_extra_chunk", 1, "*",
       "one chunk too many when C divides T decays the state once more"},
      {Edit::tail_beta_dead_rows, "tail_beta_dead_rows", 1, "gated_delta log_linear_gated_delta",
       "beta is read past the end (harmless alone: k and v are masked)"},
      {Edit::tail_scales_past_end, "tail_scales_past_end", 1, "log_linear_*",
       "the last row of a partial chunk reads the level scales of the next token"},
      {Edit::tail_residue_one, "tail_residue_one", 1, "*", "a last chunk of one token is not written"},
      {Edit::second_prefix_exclusive, "second_prefix_exclusive", 1, "hla2 ahla hla3",
       "the last moment is not advanced over a partial chunk"},
      {Edit::exp_before_mask, "exp_before_mask", 2, "gated_delta log_linear_*",
       "exp of the positive side before the mask: inf * 0"},
      {Edit::exp_middle_anchor, "exp_middle_anchor", 2, "gated_delta log_linear_*",
       "gates split at the middle of the chunk: overflow on one side"},
      {Edit::exp_start_anchor, "exp_start_anchor", 2, "gated_delta log_linear_*",
       "gates split at the start of the chunk: exp(-G) overflows"},
      {Edit::exp_difference_clamped, "exp_difference_clamped", 2, "gated_delta log_linear_*",
       "log-weights are clamped at -20"},
      {Edit::exp_gate_clamped, "exp_gate_clamped", 2, "gated_delta log_linear_*",
       "log-gates are clamped at -5"},
      {Edit::exp_linear_gate, "exp_linear_gate", 2, "gated_delta log_linear_*", "1 + g in place of exp(g)"},
      {Edit::exp_base_two, "exp_base_two", 2, "gated_delta log_linear_*", "exp2 without the factor log2(e)"},
      {Edit::exp_small_is_zero, "exp_small_is_zero", 2, "gated_delta log_linear_*",
       "weights below 1e-3 are dropped"},
      {Edit::decay_log_bf16, "decay_log_bf16", 9, "hla2 ahla hla3",
       "gamma^n as exp(n log gamma) with log gamma in bf16"},
      {Edit::decay_by_inverse, "decay_by_inverse", 2, "hla2 ahla hla3",
       "gamma^t gamma^-s: inf * 0 for gamma = 0"},
      {Edit::decay_clamped, "decay_clamped", 2, "hla2 ahla hla3", "gamma is clamped at 1/64"},
      {Edit::decay_near_one, "decay_near_one", 2, "hla2 ahla hla3", "gamma above 1 - 2^-5 is taken for 1"},
      {Edit::decay_small_is_zero, "decay_small_is_zero", 2, "hla2 ahla hla3",
       "weights below 1e-3 are dropped"},
      {Edit::cross_dropped, "cross_dropped", 3, "hla2 ahla hla3 gated_delta log_linear_gated_delta",
       "the cross term between the state and the chunk is dropped"},
      {Edit::cross_inclusive, "cross_inclusive", 3, "hla2 hla3",
       "the inner prefix includes (hla2) or lacks (hla3) its own token"},
      {Edit::cross_swapped, "cross_swapped", 3, "hla2 ahla hla3",
       "S_A C_B in place of S_B C_A: the roles of the factors are swapped"},
      {Edit::cross_between_chunks, "cross_between_chunks", 3, "*",
       "the part carried from earlier chunks is dropped from one product"},
      {Edit::cross_sign, "cross_sign", 3, "hla2 gated_delta log_linear_gated_delta",
       "the cross term has the wrong sign"},
      {Edit::prefix_first_row, "prefix_first_row", 3, "*",
       "after the first chunk a row misses a token of its own chunk"},
      {Edit::mask_strict, "mask_strict", 3, "*", "the mask excludes the diagonal"},
      {Edit::mask_missing_in_chunk, "mask_missing_in_chunk", 3, "*",
       "the mask inside a chunk admits the future"},
      {Edit::decay_as_printed, "decay_as_printed", 3, "hla2 hla3",
       "the last moment decays by gamma, as printed"},
      {Edit::decay_power_low, "decay_power_low", 3, "ahla hla3 gated_delta",
       "the power of the decay is off by one"},
      {Edit::decay_late, "decay_late", 3, "*", "the decay of a moment is applied one token late"},
      {Edit::query_key_swapped, "query_key_swapped", 3, "hla2 ahla hla3",
       "q and k exchange roles in the inner product"},
      {Edit::inner_exclusive, "inner_exclusive", 3, "hla2 ahla hla3", "the inner sum lacks its own token"},
      {Edit::carried_inner_dropped, "carried_inner_dropped", 3, "hla2",
       "the inner product forgets the carried S"},
      {Edit::inner_undecayed, "inner_undecayed", 3, "ahla gated_delta log_linear_gated_delta",
       "the inner sum is not decayed"},
      {Edit::state_inclusive, "state_inclusive", 3, "gated_delta",
       "the state takes values without their correction"},
      {Edit::inverse_identity, "inverse_identity", 3, "gated_delta log_linear_gated_delta",
       "the triangular system is not solved"},
      {Edit::inverse_diagonal, "inverse_diagonal", 3, "gated_delta log_linear_gated_delta",
       "the triangular inverse to first order only"},
      {Edit::correction_dropped, "correction_dropped", 3, "gated_delta log_linear_gated_delta",
       "values are read without the correction by the state"},
      {Edit::beta_twice, "beta_twice", 3, "gated_delta log_linear_gated_delta", "beta is applied twice"},
      {Edit::beta_missing, "beta_missing", 3, "gated_delta log_linear_gated_delta",
       "beta is missing from the values"},
      {Edit::beta_key_side_missing, "beta_key_side_missing", 3, "gated_delta log_linear_gated_delta",
       "beta is missing from the triangular system"},
      {Edit::gate_inside_twice, "gate_inside_twice", 3, "gated_delta log_linear_gated_delta",
       "the gates enter the triangular system twice"},
      {Edit::ridge_dropped, "ridge_dropped", 3, "hla2", "ridge is ignored"},
      {Edit::state_ignored, "state_ignored", 4, "*", "the initial state is ignored"},
      {Edit::state_gate_twice, "state_gate_twice", 4, "*", "the initial state is decayed once more"},
      {Edit::state_second_not_restored, "state_second_not_restored", 4, "hla2 ahla hla3",
       "the last moment is not restored"},
      {Edit::state_transposed, "state_transposed", 4, "*", "the initial state is read transposed"},
      {Edit::state_of_head_zero, "state_of_head_zero", 4, "*", "every head starts from the state of head 0"},
      {Edit::state_of_sequence_zero, "state_of_sequence_zero", 4, "*",
       "every sequence starts from the state of sequence 0"},
      {Edit::state_every_chunk, "state_every_chunk", 4, "*", "the initial state is added at every chunk"},
      {Edit::state_saved_early, "state_saved_early", 4, "*",
       "the final state is stored before the last update"},
      {Edit::state_undecayed, "state_undecayed", 4, "*", "the carried state is not decayed over a chunk"},
      {Edit::state_not_saved_single, "state_not_saved_single", 4, "*",
       "the decode step (T = 1) does not store the state"},
      {Edit::state_key_heads_stride, "state_key_heads_stride", 4, "*",
       "the state is addressed with the number of key heads"},
      {Edit::state_position_ignored, "state_position_ignored", 4, "log_linear_*",
       "the position of the initial state is ignored"},
      {Edit::state_second_not_saved, "state_second_not_saved", 4, "hla2 ahla hla3",
       "the second moment is not stored"},
      {Edit::level_of_distance, "level_of_distance", 5, "log_linear_*",
       "bit_length(t - s) in place of bit_length(t xor s)"},
      {Edit::level_not_cleared, "level_not_cleared", 5, "log_linear_*", "a merged level is not cleared"},
      {Edit::level_idle_undecayed, "level_idle_undecayed", 5, "log_linear_*",
       "levels that no token joins are not decayed"},
      {Edit::level_one_too_few, "level_one_too_few", 5, "log_linear_*", "one level too few"},
      {Edit::level_float_log, "level_float_log", 5, "log_linear_*",
       "floor(log2(x)) in floating point, off at exact powers"},
      {Edit::level_off_at_powers, "level_off_at_powers", 5, "log_linear_*",
       "the level is one too low at t = 2^k"},
      {Edit::level_scale_of_key, "level_scale_of_key", 5, "log_linear_*",
       "the level scale of the key's token"},
      {Edit::level_zero_is_one, "level_zero_is_one", 5, "log_linear_*",
       "the diagonal takes the scale of level 1"},
      {Edit::level_chunk_shift, "level_chunk_shift", 5, "log_linear_*",
       "the level of a carried block is that of the token before it"},
      {Edit::level_merge_precedence, "level_merge_precedence", 5, "log_linear_*",
       "t & 2 > 0 in place of (t & 2) > 0: large levels are not merged"},
      {Edit::level_merge_wrong_slot, "level_merge_wrong_slot", 5, "log_linear_*",
       "merged blocks of 64 tokens and more land one level too low"},
      {Edit::level_clamped, "level_clamped", 5, "log_linear_*", "levels above 5 share a scale"},
      {Edit::packed_no_reset, "packed_no_reset", 6, "*",
       "the state is not reset at the start of a packed sequence"},
      {Edit::packed_chunks_global, "packed_chunks_global", 6, "*", "chunks are cut at global positions"},
      {Edit::packed_linear_gate, "packed_linear_gate", 6, "gated_delta log_linear_*",
       "exp is missing in the packed branch"},
      {Edit::packed_empty_writes, "packed_empty_writes", 6, "*", "an empty sequence writes a row"},
      {Edit::packed_empty_state, "packed_empty_state", 6, "*",
       "an empty sequence does not hand its state on"},
      {Edit::packed_last_dropped, "packed_last_dropped", 6, "*", "the last packed sequence is not run"},
      {Edit::packed_states_compacted, "packed_states_compacted", 6, "*",
       "states are counted over the sequences that are not empty"},
      {Edit::packed_positions_global, "packed_positions_global", 6, "log_linear_*",
       "positions are not restarted in a packed sequence"},
      {Edit::packed_ends_short, "packed_ends_short", 6, "*", "the last token of a packed sequence is lost"},
      {Edit::packed_tail_reads_on, "packed_tail_reads_on", 6, "*",
       "the state of a packed sequence takes rows of the next one"},
      {Edit::address_gate_head_zero, "address_gate_head_zero", 7, "gated_delta log_linear_*",
       "all heads take the gates of head 0"},
      {Edit::address_head_modulo, "address_head_modulo", 7, "*",
       "shared heads by modulo in place of division"},
      {Edit::address_tile_offset, "address_tile_offset", 7, "*",
       "the second tile of value columns reads the first one"},
      {Edit::address_odd_lane, "address_odd_lane", 7, "*", "the last lane of an odd key width is not read"},
      {Edit::address_value_stride, "address_value_stride", 7, "*", "v is addressed with the key width"},
      {Edit::address_batch_zero, "address_batch_zero", 7, "*", "all batch entries read the keys of entry 0"},
      {Edit::address_heads_first, "address_heads_first", 7, "*", "v is read as [B, H, T, D]"},
      {Edit::address_beta_head_zero, "address_beta_head_zero", 7, "gated_delta log_linear_gated_delta",
       "all heads take beta of head 0"},
      {Edit::address_decay_head_zero, "address_decay_head_zero", 7, "hla2 ahla hla3",
       "all heads take the decay of head 0"},
      {Edit::address_value_group, "address_value_group", 7, "*", "v is shared like k"},
      {Edit::address_last_column, "address_last_column", 7, "*",
       "the last column of an odd value width repeats its neighbour"},
      {Edit::width_token_16, "width_token_16", 8, "*", "token numbers are kept in 16 bits"},
      {Edit::width_grid_65535, "width_grid_65535", 8, "*", "blocks beyond 65,535 are not launched"},
      {Edit::width_offset_16, "width_offset_16", 8, "*", "offsets are kept in 16 bits"},
      {Edit::width_chunk_8, "width_chunk_8", 8, "*", "chunk numbers are kept in 8 bits"},
      {Edit::width_position_half, "width_position_half", 8, "log_linear_*", "the position is kept in bf16"},
      {Edit::width_state_16, "width_state_16", 8, "*", "offsets of states are kept in 16 bits"},
      {Edit::width_split, "width_split", 8, "*", "rows beyond 65,536 are not written"},
      {Edit::round_state_bf16, "round_state_bf16", 9, "*", "the state is kept in bf16"},
      {Edit::round_inputs_bf16, "round_inputs_bf16", 9, "*", "fp32 inputs are rounded to bf16"},
      {Edit::round_scores_tf32, "round_scores_tf32", 9, "*", "one product takes operands in tf32"},
      {Edit::round_gate_sum_bf16, "round_gate_sum_bf16", 9, "gated_delta log_linear_*",
       "sums of gates in bf16"},
      {Edit::round_global_gate_sum, "round_global_gate_sum", 9, "gated_delta log_linear_*",
       "sums of gates from the start of the sequence"},
      {Edit::round_epsilon_twice, "round_epsilon_twice", 9, "hla2 ahla hla3", "epsilon is added twice"},
      {Edit::epsilon_dropped, "epsilon_dropped", 9, "hla2 ahla hla3", "epsilon is ignored"},
      {Edit::scale_ignored, "scale_ignored", 9, "*", "scale is ignored"},
      {Edit::scale_read_only, "scale_read_only", 9, "hla2 ahla hla3", "scale multiplies one q only"},
      {Edit::inverse_three_terms, "inverse_three_terms", 9, "gated_delta log_linear_gated_delta",
       "the triangular inverse by three terms"},
      {Edit::inverse_powers_bf16, "inverse_powers_bf16", 9, "gated_delta log_linear_gated_delta",
       "the triangular inverse by powers in bf16"},
      {Edit::round_output_down, "round_output_down", 9, "*", "the output is truncated"},
      {Edit::round_accumulate_bf16, "round_accumulate_bf16", 9, "*", "sums are kept in bf16"},
      {Edit::round_before_subtraction, "round_before_subtraction", 9, "hla2",
       "both parts are rounded to bf16 before they are subtracted"},
      {Edit::exp_fast, "exp_fast", 9, "gated_delta log_linear_*", "exp to 8 bits"},
      {Edit::round_operand_fp16, "round_operand_fp16", 9, "*", "operands are stored in fp16"},
      {Edit::round_state_per_token, "round_state_per_token", 9, "*", "the state is kept in fp16"},
      {Edit::split_correction_twice, "split_correction_twice", 10, "*",
       "a term is applied once per split of the value columns"},
      {Edit::race_stale_state, "race_stale_state", 10, "hla2 ahla hla3 gated_delta",
       "a chunk reads the state of two chunks before"},
      {Edit::race_order, "race_order", 10, "*", "sums in another order at every call"},
      {Edit::race_shared_slot, "race_shared_slot", 10, "*",
       "pairs of heads share a slot for their final state"},
      {Edit::split_tail_twice, "split_tail_twice", 10, "*", "the third chunk is counted twice in the state"},
      {Edit::race_lost_row, "race_lost_row", 10, "*", "every third call loses a row"},
      {Edit::split_overlap, "split_overlap", 10, "*", "the first column of a second tile is added twice"},
      {Edit::tile_skipped, "tile_skipped", 11, "*", "the second tile of value columns is not written"},
      {Edit::cache_by_shape, "cache_by_shape", 11, "*", "results are cached by shape"},
      {Edit::cache_without_decay, "cache_without_decay", 11, "hla2 ahla hla3",
       "results are cached without the decay"},
      {Edit::cache_by_address, "cache_by_address", 11, "*", "results are cached by address"},
      {Edit::rows_unwritten, "rows_unwritten", 11, "*", "the last row is not written when T is odd"},
      {Edit::write_before, "write_before", 11, "*", "every chunk writes to the row before it"},
      {Edit::tuning_mutates, "tuning_mutates", 11, "*",
       "the first call of a shape tunes and doubles the state"},
      {Edit::narrow_path_wrong, "narrow_path_wrong", 11, "*", "the path for d = 1 is wrong"},
      {Edit::backward_heads_not_summed, "backward_heads_not_summed", 12, "*",
       "gradients of shared heads are those of the first head that shares them"},
      {Edit::backward_chunk_last_key, "backward_chunk_last_key", 12, "*",
       "dk of the last token of a chunk is dropped"},
      {Edit::backward_border_twice, "backward_border_twice", 12, "*",
       "dv of the first token behind a chunk border is accumulated twice"},
      {Edit::backward_state_not_carried, "backward_state_not_carried", 12, "*",
       "the cotangent of the state is not carried across a chunk border"},
      {Edit::backward_final_cotangent_ignored, "backward_final_cotangent_ignored", 12, "*",
       "the cotangent of the final state is ignored"},
      {Edit::backward_state_from_zero, "backward_state_from_zero", 12, "*",
       "the backward recomputes states from zero in place of the initial state"},
      {Edit::backward_state_gradient_missing, "backward_state_gradient_missing", 12, "*",
       "the gradient of the initial state is left zero"},
      {Edit::backward_state_gradient_transposed, "backward_state_gradient_transposed", 12, "*",
       "the gradient of the initial state is written transposed"},
      {Edit::backward_scale_missing, "backward_scale_missing", 12, "*", "dq lacks the factor scale"},
      {Edit::backward_rows_unwritten, "backward_rows_unwritten", 12, "*",
       "dk of a partial last chunk is not written: what memory held stays"},
      {Edit::backward_accumulates, "backward_accumulates", 12, "*",
       "dv is added to what its buffer held after the last call"},
      {Edit::backward_values_heads_first, "backward_values_heads_first", 12, "*",
       "dv is written as [B, H, T, D]"},
      {Edit::backward_packed_no_reset, "backward_packed_no_reset", 12, "hla2 ahla hla3 gated_delta",
       "the backward runs packed sequences as one"},
      {Edit::backward_gates_ignored, "backward_gates_ignored", 12, "gated_delta log_linear_*",
       "the backward recomputes and differentiates without gates"},
      {Edit::backward_gates_shifted, "backward_gates_shifted", 12, "gated_delta log_linear_*",
       "the backward takes the gate of the token before"},
      {Edit::backward_gate_sum_missing, "backward_gate_sum_missing", 12, "gated_delta log_linear_*",
       "the gradient of a gate lacks its suffix sum"},
      {Edit::backward_gate_sum_of_chunk, "backward_gate_sum_of_chunk", 12, "gated_delta log_linear_*",
       "the suffix sum of the gates' gradient ends with the chunk"},
      {Edit::backward_ridge_dropped, "backward_ridge_dropped", 12, "hla2", "the backward ignores ridge"},
      {Edit::backward_beta_key_side_missing, "backward_beta_key_side_missing", 12,
       "gated_delta log_linear_gated_delta", "dbeta lacks its part through the triangular system"},
      {Edit::backward_levels_shifted, "backward_levels_shifted", 12, "log_linear_*",
       "the gradients of the level scales are written one level too high"},
      {Edit::memo_of_first_call, "memo_of_first_call", 13, "*",
       "the first result of a length is returned again"},
      {Edit::zero_small_outputs, "zero_small_outputs", 13, "*", "outputs below 1e-4 are zero"},
      {Edit::inputs_changed, "inputs_changed", 13, "*", "q is scaled in place"},
      {Edit::nan_to_zero, "nan_to_zero", 13, "*", "NaN becomes 0"},
      {Edit::nan_input_to_zero, "nan_input_to_zero", 13, "*", "NaN in the inputs becomes 0"},
      {Edit::skip_when_keys_small, "skip_when_keys_small", 13, "hla2 gated_delta log_linear_gated_delta",
       "a correction is skipped when inputs are small"},
      {Edit::clamp_outputs, "clamp_outputs", 13, "*", "outputs are clamped to +-1000"},
      {Edit::first_head_copied, "first_head_copied", 13, "*", "head 2 is a copy of head 0"},
      {Edit::later_rows_cheap, "later_rows_cheap", 13, "*",
       "one row a chunk is left as it was from the third chunk on"},
  };
  return list;
}

std::string_view edit_name(Edit edit) {
  for (const EditInfo& info : edits())
    if (info.edit == edit) return info.name;
  return "none";
}

const std::vector<std::string>& production_operators() {
  static const std::vector<std::string> names = {
      "hla2", "ahla", "hla3", "gated_delta", "log_linear_mamba2", "log_linear_gated_delta"};
  return names;
}

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> list = [] {
    std::vector<Mutant> made;
    for (const std::string& op : production_operators())
      for (const EditInfo& info : edits()) {
        if (!applies(info, op)) continue;
        made.push_back({production_kernel(operator_named(op, "masked"), info.edit, false), &info});
        if (also_in_bf16(info.edit))
          made.push_back({production_kernel(operator_named(op, "masked"), info.edit, true), &info});
      }
    return made;
  }();
  return list;
}

std::vector<Kernel> unedited_kernels() {
  std::vector<Kernel> list;
  for (const std::string& op : production_operators())
    for (const bool bf16 : {false, true})
      list.push_back(production_kernel(operator_named(op, "masked"), Edit::none, bf16));
  return list;
}

std::string equivalent_because(const Mutant& mutant) {
  const std::string& op = mutant.kernel.op;
  switch (mutant.info->edit) {
    case Edit::tail_beta_dead_rows:
      return "the keys and values of dead rows are zero, so whatever beta they read multiplies zeros";
    case Edit::tail_state_dead_rows:
    case Edit::packed_tail_reads_on:
      if (op == "log_linear_mamba2")
        return "the dyadic blocks that join the state are cut to the live rows, so dead ones are never "
               "summed";
      return "";
    default:
      return "";
  }
}

const std::vector<MissingFamily>& missing_families() {
  static const std::vector<MissingFamily> list;
  return list;
}

}  // namespace attest
