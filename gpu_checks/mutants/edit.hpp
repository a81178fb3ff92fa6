// One mistake each. Families are those of the list of real faults (mutants.cpp states family, operators and what is
// wrong for every edit).
#pragma once

namespace attest {

enum class Edit {
  none,
  // 1 partial last chunk
  tail_state_dead_rows, tail_gate_dead_rows, tail_decay_full_chunk, tail_chunk_dropped, tail_last_row_dropped,
  tail_state_without_partial, tail_extra_chunk, tail_beta_dead_rows, tail_scales_past_end, tail_residue_one,
  // 2 exponent range
  exp_before_mask, exp_middle_anchor, exp_start_anchor, exp_difference_clamped, exp_gate_clamped, exp_linear_gate,
  exp_base_two, exp_small_is_zero, decay_log_bf16, decay_by_inverse, decay_clamped, decay_near_one, decay_small_is_zero,
  // 3 cross terms and prefixes
  cross_dropped, cross_inclusive, cross_swapped, cross_between_chunks, prefix_first_row, mask_strict, mask_missing_in_chunk,
  decay_as_printed, decay_power_low, decay_late, query_key_swapped, inner_exclusive, carried_inner_dropped, inner_undecayed,
  state_inclusive, second_prefix_exclusive, inverse_identity, inverse_diagonal, correction_dropped, beta_twice, beta_missing,
  beta_key_side_missing, gate_inside_twice, cross_sign, ridge_dropped,
  // 4 state hand-off
  state_ignored, state_gate_twice, state_second_not_restored, state_transposed, state_of_head_zero, state_of_sequence_zero,
  state_every_chunk, state_saved_early, state_undecayed, state_not_saved_single, state_key_heads_stride, state_position_ignored,
  state_second_not_saved,
  // 5 Fenwick levels
  level_of_distance, level_not_cleared, level_idle_undecayed, level_one_too_few, level_float_log, level_off_at_powers,
  level_scale_of_key, level_zero_is_one, level_chunk_shift, level_merge_precedence, level_merge_wrong_slot, level_clamped,
  // 6 packed sequences
  packed_no_reset, packed_chunks_global, packed_linear_gate, packed_empty_writes, packed_empty_state, packed_last_dropped,
  packed_states_compacted, packed_positions_global, packed_ends_short, packed_tail_reads_on,
  // 7 addressing
  address_gate_head_zero, address_head_modulo, address_tile_offset, address_odd_lane, address_value_stride,
  address_batch_zero, address_heads_first, address_beta_head_zero, address_decay_head_zero, address_value_group,
  address_last_column,
  // 8 index width
  width_token_16, width_grid_65535, width_offset_16, width_chunk_8, width_position_half, width_state_16, width_split,
  // 9 precision
  round_state_bf16, round_inputs_bf16, round_scores_tf32, round_gate_sum_bf16, round_global_gate_sum, round_epsilon_twice,
  scale_ignored, scale_read_only, inverse_three_terms, round_output_down, round_accumulate_bf16, round_before_subtraction,
  exp_fast, epsilon_dropped, round_operand_fp16, inverse_powers_bf16, round_state_per_token,
  // 10 races and splits
  split_correction_twice, race_stale_state, race_order, race_shared_slot, split_tail_twice, race_lost_row, split_overlap,
  // 11 configuration and stale data
  tile_skipped, cache_by_shape, cache_without_decay, rows_unwritten, write_before, tuning_mutates, narrow_path_wrong,
  cache_by_address,
  // 13 adversarial
  zero_small_outputs, inputs_changed, nan_to_zero, nan_input_to_zero, skip_when_keys_small, clamp_outputs, first_head_copied,
  later_rows_cheap, memo_of_first_call,
};

}  // namespace attest
