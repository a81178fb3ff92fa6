// Each operator as Lin passes over segments (common.cuh), or as a recurrence. Run twice: without a workspace it only
// counts its bytes. On matrix units a Lin takes its keys and values 128 at a time: values fall apart, sums over keys are
// added in fp32, those of the scores before they are rounded. Dimensions that the matrix units do not take are widened
// by zeros, which changes no value, and narrowed again: to a multiple of 8, or, for what is not made of Lins, to 64 or a
// multiple of 128.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "gpu_checks/kernels/cuda/launch.cuh"
#include "gpu_checks/kernels/cuda/operators.hpp"

namespace attest::cuda {
namespace {

constexpr int chunk = 64;

// The state of the Lin of ones, as a state of its own.
Moment companion_of(const Moment& m) {
  Moment result;
  result.data = m.companion, result.type = m.companion_type;
  return result;
}

class Composer {
 public:
  Composer(const Call& call, char* workspace) : call_(call), base_(workspace) {
    context_.batch = call.batch;
    context_.stream = call.stream;
    context_.units = call.units;
    context_.shared_bytes = call.shared_bytes;
    tuned_ = choose_path();
    levels_tuned_ = log_linear_fits();
    stepping_ = step_fits();
    delta_tuned_ = delta_fits();
    delta_wide_ = !delta_tuned_ && !levels_tuned_ && delta_wide_fits();
    make_layout();
  }
  Outcome outcome;
  size_t used = 0;

  // Whether the whole call has a tuned path.
  bool tuned() const {
    switch (call_.op) {
      case Op::log_linear:
      case Op::log_linear_mamba2:
        return levels_tuned_ || delta_wide_;
      case Op::delta:
      case Op::gated_delta:
      case Op::log_linear_gated_delta:
        return delta_tuned_ || delta_wide_ || stepping_;
      default:
        return stepping_ || (tuned_ && !steps_when_widened());
    }
  }

  void compose() {
    if (stepping_) {
      if (!counting()) check(launch_step(context_, step_job()), "step");
      return;
    }
    compose_operator();
    used = std::max(used, peak_);
  }

 private:
  void compose_operator() {
    switch (call_.op) {
      case Op::ahla:
        return ahla();
      case Op::hla2:
        return call_.variant == Variant::masked     ? hla2()
               : call_.variant == Variant::unmasked ? hla2_unmasked()
                                                    : hla2_printed();
      case Op::hla3:
        return call_.variant == Variant::masked ? hla3() : hla3_unmasked();
      case Op::linear:
      case Op::retention:
      case Op::mamba2:
        return first_order();
      default:
        return recurrent();
    }
  }
  static constexpr bool states_only = true;

  bool counting() const { return base_ == nullptr; }
  void check(cudaError_t error, const char* where) {
    if (error != cudaSuccess && outcome.error == cudaSuccess) outcome.error = error, outcome.where = where;
  }
  template <typename T>
  T* take(int64_t count) {
    const size_t at = used;
    used += (static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(T) + 255) / 256 * 256;
    return counting() ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  // Rows [B, T, H, columns] in the workspace.
  View rows(int columns, Type type) {
    const int64_t count = call_.batch * call_.tokens * call_.heads * columns;
    void* data = take<char>(count * bytes_of(type));
    return {
        data,    type, 1, call_.tokens * call_.heads * columns, static_cast<int64_t>(call_.heads) * columns,
        columns, 1};
  }
  Type between() const { return tuned_ ? call_.type : Type::f32; }

  // The matrix path takes the whole call or none of it.
  bool choose_path() const {
    if (!take_whole_rows({&call_.q, &call_.o}, call_.type)) return false;
    const bool scales_states = call_.ridge != 0 || call_.variant != Variant::masked;
    if (scales_states && !std::isnormal(1 / (call_.scale * call_.scale))) return false;
    Lin lin;
    lin.x = call_.q, lin.y = call_.k, lin.z = call_.v, lin.o = call_.o;
    lin.key_dim = call_.key_dim, lin.value_dim = call_.value_dim;
    if (!on_matrix_units(lin)) return false;
    if (call_.op != Op::hla2 && call_.op != Op::hla3) return true;
    lin.z = call_.k, lin.value_dim = call_.key_dim;
    lin.o.type = call_.type;
    return on_matrix_units(lin);
  }
  bool on_matrix_units(const Lin& lin) const { return matrix_units_support(context_, piece_of(lin, 0, 0)); }

  void make_layout() {
    Layout& layout = context_.layout;
    layout.tokens = call_.tokens;
    layout.sequences = call_.sequences;
    layout.heads = call_.heads;
    layout.bounds = call_.bounds;
    const int64_t rows_of_heads = std::max<int64_t>(1, (call_.bounds ? 1 : call_.batch) * call_.heads);
    const int64_t chunks = std::max<int64_t>(1, (call_.tokens + chunk - 1) / chunk);
    // As many segments as fill the device a whole number of times, the fewest that nearly do.
    // Two blocks of a Lin of 64 columns fit on a multiprocessor, and one leaves half of it idle.
    const bool narrow = tuned_ && !delta_tuned_ && std::max(call_.key_dim, call_.value_dim) <= 64;
    const int blocks = narrow ? 2 : tuned_ || delta_tuned_ ? 1 : 4;
    const int64_t slots = static_cast<int64_t>(call_.multiprocessors) * blocks;
    int64_t best = 1;
    double best_cost = 1e300;
    for (int64_t n = 1; n <= std::min<int64_t>(chunks, 256); ++n) {
      const int64_t length = (chunks + n - 1) / n, waves = (n * rows_of_heads + slots - 1) / slots;
      const double cost = static_cast<double>(waves * length) + 0.25 * static_cast<double>(n);
      if (cost < best_cost) best_cost = cost, best = n;
    }
    int64_t segment = (chunks + best - 1) / best * chunk;
    if (levels_tuned_) {  // whole groups of 8 chunks, as many as leave two segments for a multiprocessor
      int64_t groups = 1;
      while (chunks / (8 * groups * 2) * rows_of_heads >= 2 * call_.multiprocessors) groups *= 2;
      segment = groups * 8 * chunk;
    } else if (delta_wide_) {
      segment = chunk;
    } else if (call_.segment > 0)
      segment = (call_.segment + chunk - 1) / chunk * chunk;
    layout.segment = static_cast<int>(std::min<int64_t>(segment, 1 << 30));
    layout.per_sequence = static_cast<int>((call_.tokens + layout.segment - 1) / layout.segment);
    layout.segments = static_cast<int64_t>(layout.per_sequence) * call_.batch;
    if (call_.bounds) {
      layout.segments = call_.tokens / layout.segment + call_.sequences;
      int* bases = take<int>(call_.sequences + 1);
      layout.segment_base = bases;
      if (counting()) return;
      if (is<Mutant::table_cached_by_pointer>) {
        static const int64_t* known = nullptr;
        if (known == call_.bounds) return;
        known = call_.bounds;
      }
      check(launch_segment_bases(layout, bases, call_.stream), "segment table");
    }
  }

  // Of rows that both() gives it.
  Lin lin(const View& x, const View& y, int power) const {
    Lin result;
    result.x = x, result.y = y;
    result.key_dim = call_.key_dim, result.value_dim = call_.value_dim;
    result.gate = call_.gate;
    result.gate.power = power;
    return result;
  }
  // Of rows as wide as keys.
  Lin lin(const View& x, const View& y, const View& z, const View& o, int power) const {
    Lin result = lin(x, y, power);
    result.z = z, result.o = o, result.value_dim = call_.key_dim;
    return result;
  }

  static constexpr int widest = 128;  // of a piece
  // The piece of a Lin that begins with this column of the keys and this one of the values.
  static Lin piece_of(const Lin& whole, int key, int value) {
    Lin piece = whole;
    const auto from = [](View& view, int column) {
      if (view.data) view.data = static_cast<char*>(view.data) + int64_t{column} * bytes_of(view.type);
    };
    from(piece.x, key), from(piece.y, key), from(piece.z, value), from(piece.o, value),
        from(piece.add, value);
    piece.key_dim = std::min(widest, whole.key_dim - key);
    piece.value_dim = std::min(widest, whole.value_dim - value);
    piece.tile_keys = piece.key_dim <= 64 ? 64 : widest,
    piece.tile_values = piece.value_dim <= 64 ? 64 : widest;
    piece.take_sums = key > 0, piece.leave_sums = key + widest < whole.key_dim;
    return piece;
  }
  static Moment piece_of(Moment moment, const Lin& whole, int key, int value) {
    moment.rows = whole.key_dim, moment.columns = whole.value_dim;
    if (moment.data)
      moment.data =
          static_cast<char*>(moment.data) +
          (moment.transposed ? int64_t{value} * moment.rows + key : int64_t{key} * moment.columns + value) *
              bytes_of(moment.type);
    return moment;
  }

  struct Pass {
    Lin job;
    Moment initial, final;
  };
  bool states_needed(const Pass& pass) const {
    return pass.final.data || context_.layout.bounds || context_.layout.per_sequence > 1;
  }
  void run(const Lin& job, const Moment& initial, const Moment& final, bool only_states = false) {
    run({Pass{job, initial, final}}, only_states);
  }
  // Passes of the same gate, x and y that read nothing of each other.
  void run(std::vector<Pass> passes, bool only_states = false) {
    for (Pass& pass : passes)
      if (only_states) pass.job.x = View{};
    if (tuned_ && on_matrix_units(passes.front().job)) return run_on_matrix_units(passes, only_states);
    for (Pass& pass : passes) {
      const int64_t slots = context_.layout.segments * context_.layout.heads;
      const size_t before = used;
      pass.job.states = take<float>(slots * pass.job.value_dim * pass.job.key_dim);
      pass.job.fade = take<float>(slots);
      release(before);
      if (counting()) continue;
      if (states_needed(pass))
        check(launch_generic_states(context_, pass.job, pass.initial), "states of segments");
      check(launch_scan(context_, pass.job, pass.initial, pass.final, true), "scan of segments");
      if (!only_states) check(launch_generic_rows(context_, pass.job), "rows");
    }
  }
  // Pieces of values two by two; for each the pieces of keys one after the other.
  void run_on_matrix_units(const std::vector<Pass>& passes, bool only_states) {
    std::vector<std::pair<const Pass*, int>> pieces;  // a pass and its column
    for (const Pass& pass : passes)
      for (int value = 0; value < pass.job.value_dim; value += widest) pieces.emplace_back(&pass, value);
    const auto tile = [&](size_t i) {
      return piece_of(pieces[i].first->job, 0, pieces[i].second).tile_values;
    };
    for (size_t i = 0; i < pieces.size();) {
      const size_t count = i + 1 < pieces.size() && tile(i) == tile(i + 1) ? 2 : 1;
      run_pieces(pieces.data() + i, static_cast<int>(count), only_states);
      i += count;
    }
  }
  void run_pieces(const std::pair<const Pass*, int>* pieces, int count, bool only_states) {
    const Layout& layout = context_.layout;
    const int64_t slots = layout.segments * layout.heads;
    const int key_dim = pieces[0].first->job.key_dim;
    const size_t before = used;
    float *states[2] = {}, *fades[2] = {};
    float4 *sums[2] = {}, *scores = nullptr;
    for (int i = 0; i < count; ++i) {
      const Lin first = piece_of(pieces[i].first->job, 0, pieces[i].second);
      states[i] = take<float>(slots * first.tile_keys * first.tile_values);
      fades[i] = take<float>(slots);
      if (!first.leave_sums) continue;
      sums[i] = take<float4>(slots * (layout.segment / chunk) * 16 * first.tile_values);
      if (i == 0) scores = take<float4>(slots * (layout.segment / chunk) * chunk * chunk / 4);
    }
    release(before);
    if (counting()) return;
    for (int key = 0; key < key_dim; key += widest) {
      Lins lins;
      lins.count = count, lins.scores = scores;
      bool needed = false;
      for (int i = 0; i < count; ++i) {
        const auto [pass, value] = pieces[i];
        lins.lin[i] = piece_of(pass->job, key, value);
        lins.lin[i].states = states[i], lins.lin[i].fade = fades[i], lins.lin[i].sums = sums[i];
        lins.lin[i].x_scale *= lins.lin[i].y_scale;  // rows read keys as they are
        needed = needed || states_needed(*pass);
      }
      const bool hopper = context_.units == MatrixUnits::wgmma;
      if (needed)
        check((hopper ? launch_wgmma_states : launch_mma_states)(context_, lins), "states of segments");
      for (int i = 0; i < count; ++i) {
        const auto [pass, value] = pieces[i];
        check(launch_scan(context_, lins.lin[i], piece_of(pass->initial, pass->job, key, value),
                          piece_of(pass->final, pass->job, key, value), false),
              "scan of segments");
      }
      if (!only_states) check((hopper ? launch_wgmma_rows : launch_mma_rows)(context_, lins), "rows");
    }
  }
  void release(size_t before) {  // the next pass takes it again
    peak_ = std::max(peak_, used);
    used = before;
  }

  // Rows of values and, where a call is normalised, those of the same operator on ones: fp32, or eight columns of which
  // the first counts, as matrix units take them.
  struct Rows {
    View values, ones;
  };
  Rows values() {
    if (call_.normalize && !one_) {
      one_.emplace();
      one_->type = between(), one_->data = take<float>(8);
      if (!counting()) check(launch_one(*one_, call_.stream), "ones");
    }
    return {call_.v, one_.value_or(View{})};
  }
  Rows rows_between() {
    return {rows(call_.value_dim, between()), call_.normalize ? rows(8, between()) : View{}};
  }
  Rows rows_to_add() {
    return {rows(call_.value_dim, Type::f32), call_.normalize ? rows(1, Type::f32) : View{}};
  }
  // A Lin of values, and of ones.
  std::vector<Pass> both(Lin job, const Rows& z, const Rows& o, const Moment& initial, const Moment& final,
                         const Rows& add = {}) const {
    job.z = z.values, job.o = o.values;
    if (add.values.data) job.add = add.values;
    std::vector<Pass> passes{{job, initial, final}};
    if (!call_.normalize) return passes;
    job.z = z.ones, job.o = o.ones, job.value_dim = 1, job.of_ones = true;
    if (add.values.data) job.add = add.ones;
    passes.push_back({job, companion_of(initial), companion_of(final)});
    return passes;
  }
  // The Lins that end a call: that of values is divided by that of ones.
  void run_last(const Lin& job, const Rows& z, const Moment& initial, const Moment& final,
                const Rows& add = {}) {
    const Rows o = {call_.o, call_.normalize ? rows(1, Type::f32) : View{}};
    std::vector<Pass> passes = both(job, z, o, initial, final, add);
    if (call_.normalize) {
      run({passes[1]});
      passes[0].job.denominators = o.ones, passes[0].job.epsilon = call_.epsilon;
    }
    run({passes[0]});
  }
  static Moment transposed(Moment m) {
    m.transposed = true;
    return m;
  }
  Moment fresh() {
    const int64_t count = static_cast<int64_t>(call_.sequences) * call_.heads * call_.key_dim;
    Moment m;
    m.data = take<float>(count * call_.value_dim);
    if (call_.normalize) m.companion = take<float>(count);
    return m;
  }
  static bool given(const Moment& m) { return m.data || m.companion; }

  void first_order() {
    Lin job = lin(call_.q, call_.k, 1);
    job.x_scale = call_.scale;
    run_last(job, values(), call_.initial.moments[0], call_.final.moments[0]);
  }

  void ahla() {
    const Moment *from = call_.initial.moments, *to = call_.final.moments;
    const Rows r = rows_between();
    Lin job = lin(call_.q, call_.k, 1);
    job.x_scale = call_.scale;
    run(both(job, values(), r, from[0], to[0]));
    run_last(job, r, from[1], to[1]);
  }

  void hla2() {
    const Moment *from = call_.initial.moments, *to = call_.final.moments;
    const View a = rows(call_.key_dim, between());
    Lin first = lin(call_.q, call_.k, call_.k, a, 1);
    first.x_scale = call_.scale;
    // F = S C - G at both ends of the call.
    const bool import = given(from[2]) || (given(from[0]) && given(from[1])), leave = given(to[2]);
    Moment f_initial, f_final, s_final = to[0], c_final = to[1];
    if (import) f_initial = fresh();
    if (leave) {
      f_final = fresh();
      if (!given(c_final)) c_final = fresh();
      if (!given(s_final))
        s_final.data =
            take<float>(static_cast<int64_t>(call_.sequences) * call_.heads * call_.key_dim * call_.key_dim);
    }
    if (import && !counting())
      check(launch_cross(context_, from[0], from[1], from[2], f_initial, call_.key_dim, call_.value_dim),
            "initial F");
    run(first, transposed(from[0]), transposed(s_final));
    Lin second = lin(call_.q, a, is<Mutant::decay_power_low> ? 1 : 2);
    second.x_scale = call_.scale;
    Rows ridge;
    if (call_.ridge != 0) {
      ridge = ridge_rows(from[1], c_final);
      second.add_scale = call_.ridge;
    } else if (given(c_final)) {
      Lin third = lin(call_.q, call_.q, 1);
      third.y_scale = call_.scale;
      run(both(third, values(), Rows{}, from[1], c_final), states_only);
    }
    run_last(second, values(), is<Mutant::third_moment_not_restored> ? Moment{} : f_initial, f_final, ridge);
    if (leave && !counting())
      check(launch_cross(context_, s_final, c_final, f_final, to[2], call_.key_dim, call_.value_dim),
            "final G");
  }
  // q_t^T C_t
  Rows ridge_rows(const Moment& initial, const Moment& final) {
    const Rows result = rows_to_add();
    Lin job = lin(call_.q, call_.q, 1);
    job.x_scale = job.y_scale = call_.scale;
    run(both(job, values(), result, initial, final));
    return result;
  }

  void hla2_unmasked() {
    const Moment *from = call_.initial.moments, *to = call_.final.moments;
    const View a = rows(call_.key_dim, between());
    Lin first = lin(call_.q, call_.k, call_.k, a, 1);
    first.x_scale = call_.scale;
    if (call_.ridge != 0) first.add = call_.q, first.add_scale = call_.ridge * call_.scale;
    run(first, from[0], to[0]);
    Lin second = lin(a, call_.q, 1);
    second.y_scale = call_.scale;
    run_last(second, values(), from[1], to[1]);
  }

  void hla2_printed() {
    const Moment *from = call_.initial.moments, *to = call_.final.moments;
    const View a = rows(call_.key_dim, between());
    const Rows u = rows_to_add(), b = rows_between();
    Lin first = lin(call_.q, call_.k, call_.k, a, 1);
    first.x_scale = call_.scale;
    run(first, from[0], to[0]);
    Rows ridge;
    if (call_.ridge != 0) ridge = ridge_rows(from[1], Moment{});
    Lin second = lin(a, call_.q, 1);
    second.y_scale = call_.scale, second.add_scale = call_.ridge;
    run(both(second, values(), u, from[1], to[1], ridge));
    Lin third = lin(call_.k, call_.q, 1);
    third.y_scale = call_.scale;
    third.exclusive = true;
    run(both(third, values(), b, from[1], Moment{}));
    Lin last = lin(call_.q, call_.k, 1);
    last.x_scale = -call_.scale;
    run_last(last, b, from[2], to[2], u);
  }

  void hla3() {
    const Moment *from = call_.initial.moments, *to = call_.final.moments;
    const View a = rows(call_.key_dim, between());
    const Rows r = rows_between();
    Lin first = lin(call_.q, call_.k, call_.k, a, 1), second = lin(call_.q, call_.k, 1),
        third = lin(call_.q, a, 3);
    first.x_scale = second.x_scale = third.x_scale = call_.scale;
    std::vector<Pass> passes = both(second, values(), r, from[1], to[1]);
    passes.insert(passes.begin(), Pass{first, transposed(from[0]), transposed(to[0])});
    run(passes);
    run_last(third, r, from[2], to[2]);
  }

  void hla3_unmasked() {
    const Moment *from = call_.initial.moments, *to = call_.final.moments;
    const View a = rows(call_.key_dim, between()), b = rows(call_.key_dim, between());
    Lin first = lin(call_.q, call_.k, call_.k, a, 1);
    first.x_scale = call_.scale;
    run(first, from[0], to[0]);
    Lin second = lin(a, call_.q, call_.q, b, 1);
    second.y_scale = call_.scale * call_.scale;
    run(second, from[1], to[1]);
    run_last(lin(b, call_.k, 1), values(), from[2], to[2]);
  }

  LogLinear log_linear_job() const {
    LogLinear job;
    job.q = call_.q, job.k = call_.k, job.v = call_.v, job.o = call_.o, job.level_scales = call_.level_scales;
    job.key_dim = call_.key_dim, job.value_dim = call_.value_dim, job.levels = call_.levels;
    job.gate = call_.gate;
    job.scale = call_.scale;
    job.final = call_.final.moments[0], job.final_levels = call_.final.levels,
    job.final_position = call_.final.position;
    return job;
  }
  bool log_linear_fits() const {
    if (call_.op != Op::log_linear && call_.op != Op::log_linear_mamba2) return false;
    if (call_.normalize || given(call_.initial.moments[0]) || call_.initial.position) return false;
    const bool pieces = std::max(call_.key_dim, call_.value_dim) > widest;
    if (pieces && (call_.key_dim % widest != 0 || call_.value_dim % widest != 0)) return false;
    return log_linear_supports(context_, piece_of(log_linear_job(), 0, 0), call_.type);
  }
  // The piece that begins with this column of the keys and this one of the values.
  LogLinear piece_of(LogLinear job, int key, int value) const {
    const auto from = [](View& view, int column) {
      if (view.data) view.data = static_cast<char*>(view.data) + int64_t{column} * bytes_of(view.type);
    };
    from(job.q, key), from(job.k, key), from(job.v, value), from(job.o, value);
    job.key_dim = std::min(widest, call_.key_dim), job.value_dim = std::min(widest, call_.value_dim);
    job.take_sums = key > 0, job.leave_sums = key + widest < call_.key_dim;
    job.keys_before = job.leave_sums ? 0 : key;
    job.final = piece_of(job.final, lin(call_.q, call_.k, 1), key, value);
    return job;
  }
  void log_linear() {
    LogLinear job = log_linear_job();
    const int64_t slots =
        context_.layout.segments * context_.layout.heads * (context_.layout.segment / (8 * chunk));
    const LogLinear first = piece_of(job, 0, 0);
    const int64_t state = static_cast<int64_t>(first.key_dim) * first.value_dim;
    job.group_states = take<float>(slots * state);
    job.slots = take<char>(slots * 8 * state * bytes_of(call_.type));
    job.slot_fades = take<float>(slots * 8);
    job.block_fades = take<float>(slots * 8);
    if (first.leave_sums) job.sums = take<float4>(slots * 8 * chunk * first.value_dim / 4);
    if (counting()) return;
    for (int value = 0; value < call_.value_dim; value += widest)
      for (int key = 0; key < call_.key_dim; key += widest)
        check(launch_log_linear(context_, piece_of(job, key, value)), "levels");
  }

  Step step_job() const {
    Step job;
    job.kind = call_.op == Op::ahla                                   ? StepKind::ahla
               : call_.op == Op::hla2                                 ? StepKind::hla2
               : call_.op == Op::hla3                                 ? StepKind::hla3
               : call_.op == Op::delta || call_.op == Op::gated_delta ? StepKind::delta
                                                                      : StepKind::first_order;
    job.q = call_.q, job.k = call_.k, job.v = call_.v, job.o = call_.o, job.beta = call_.beta;
    job.dim = call_.key_dim;
    job.gate = call_.gate;
    job.scale = call_.scale, job.ridge = call_.ridge;
    for (int i = 0; i < 3; ++i)
      job.initial[i] = call_.initial.moments[i], job.final[i] = call_.final.moments[i];
    return job;
  }
  bool is_step() const {
    return call_.tokens == 1 && !call_.bounds && !call_.normalize && call_.levels == 0 &&
           call_.variant == Variant::masked;
  }
  bool step_fits() const {
    return is_step() && call_.key_dim == call_.value_dim && step_supports(step_job());
  }
  // A single token is better off as a step of a wider state than as a chunk.
  bool steps_when_widened() const {
    return is_step() && std::max(call_.key_dim, call_.value_dim) <= 128 && !step_fits();
  }
  Delta delta_job() const {
    Delta job;
    job.q = call_.q, job.k = call_.k, job.v = call_.v, job.o = call_.o, job.beta = call_.beta;
    job.level_scales = call_.level_scales;
    job.dim = call_.key_dim, job.levels = call_.levels;
    job.delta_rule = is_delta_rule();
    job.gate = call_.gate;
    job.scale = call_.scale;
    job.initial = call_.initial.moments[0], job.final = call_.final.moments[0];
    return job;
  }
  bool is_delta_rule() const {
    return call_.op == Op::delta || call_.op == Op::gated_delta || call_.op == Op::log_linear_gated_delta;
  }
  bool delta_fits() const {
    const bool levels = call_.op == Op::log_linear_gated_delta;
    if (!is_delta_rule()) return false;
    if (call_.key_dim != call_.value_dim || call_.tokens == 0) return false;
    if (levels && (call_.bounds || given(call_.initial.moments[0]) || call_.initial.position)) return false;
    return delta_supports(context_, delta_job(), call_.type);
  }
  // Fewer tokens than make a chunk are better off one by one. The log-linear operators without the delta rule are better off
  // in their own chunks, from position 0.
  bool delta_wide_fits() const {
    const bool levels = call_.levels > 0, delta = is_delta_rule();
    if (!levels && !delta) return false;
    if (!delta && (call_.normalize || !call_.initial.position)) return false;
    if (call_.key_dim != call_.value_dim || call_.tokens <= (levels ? chunk : 1)) return false;
    return delta_wide_supports(context_, delta_job(), call_.type);
  }
  void delta_wide() {
    Delta job = delta_job();
    const int64_t chunks = context_.layout.segments * context_.layout.heads;
    job.faded_keys = rows(call_.key_dim, call_.type);
    if (job.delta_rule) {
      job.w = rows(call_.key_dim, call_.type), job.u = rows(call_.value_dim, call_.type);
      job.scores = take<char>(chunks * chunk * chunk * bytes_of(call_.type));
    } else {
      job.u = call_.v;
    }
    job.from_start = take<float>(chunks * chunk);
    if (call_.levels > 0) return delta_wide_levels(job);
    if (!counting()) check(launch_delta_wide(context_, job), "delta rule");
  }
  // A call that begins or ends within a chunk: these tokens one by one, before the chunks and, for the state alone, after.
  void delta_wide_levels(Delta& job) {
    job.sums = take<float4>(context_.layout.segments * context_.layout.heads * chunk * call_.value_dim / 4);
    const bool continued = call_.initial.position,
               wanted = given(call_.final.moments[0]) || call_.final.position;
    const int64_t matrices = static_cast<int64_t>(call_.sequences) * call_.heads;
    const int64_t state = static_cast<int64_t>(call_.key_dim) * call_.value_dim;
    Recurrent before;
    if (continued || wanted) before = recurrent_job(call_.o);
    before.part = Recurrent::Part::before_chunks;
    before.start = job.position = call_.initial.position;
    Recurrent rest = before;
    rest.part = Recurrent::Part::after_chunks, rest.o = View{};
    job.live_levels = before.levels;
    Moment carried, live;
    if (continued) {
      carried.data = take<float>(matrices * job.live_levels * state);
      job.carried = static_cast<const float*>(carried.data);
      before.final = carried, before.final_levels = job.live_levels, before.final_position = nullptr;
    }
    if (wanted) {
      live.data = job.live = take<float>(matrices * job.live_levels * state);
      job.live_position = take<int64_t>(call_.sequences);
      rest.initial = live, rest.initial_levels = job.live_levels, rest.initial_position = job.live_position;
    }
    if (counting()) return;
    if (continued) check(launch_recurrent(context_, before), "tokens before the chunks");
    if (continued && wanted)  // blocks below a chunk, of sequences that do not reach one
      check(launch_copy_matrices(carried, live, matrices * job.live_levels, call_.key_dim, call_.value_dim,
                                 call_.key_dim, call_.value_dim, call_.stream),
            "final state");
    check(launch_delta_wide(context_, job), "delta rule");
    if (wanted) check(launch_recurrent(context_, rest), "final state");
  }
  void delta() {
    Delta job = delta_job();
    job.w = rows(call_.key_dim, call_.type), job.u = rows(call_.value_dim, call_.type);
    const int64_t state = static_cast<int64_t>(call_.key_dim) * call_.value_dim;
    if (call_.levels > 0) {
      const int64_t heads = call_.batch * call_.heads, chunks = (call_.tokens + chunk - 1) / chunk;
      const int bytes = bytes_of(call_.type);
      job.queries = take<char>(chunks * heads * chunk * call_.key_dim * bytes);
      job.weights = take<char>(chunks * heads * chunk * chunk * bytes);
      job.slots = take<char>(chunks * heads * 2 * state * bytes);
      job.slot_fades = take<float>(chunks * heads);
      for (const int level : {3, 4}) {  // blocks of 8 chunks, of 16, and so on in turn
        job.nodes[level % 2] = take<float>((call_.tokens / chunk >> level) * heads * 2 * state);
        job.node_fades[level % 2] = take<float>((call_.tokens / chunk >> level) * heads);
      }
    } else {
      const int64_t slots = context_.layout.segments * context_.layout.heads;
      job.states = take<float>(slots * state);
      job.transitions = take<float>(slots * state);
    }
    const bool state_wanted = call_.levels > 0 && (given(call_.final.moments[0]) || call_.final.position);
    Recurrent rest;  // for the final state: the tokens after the last whole chunk
    if (state_wanted) rest = after_whole_chunks(job);
    if (counting()) return;
    check(call_.levels > 0 ? launch_delta_levels(context_, job) : launch_delta(context_, job), "delta rule");
    if (!state_wanted) return;
    Context context = context_;
    context.layout.tokens = call_.tokens % chunk;
    check(launch_recurrent(context, rest), "final state");
  }
  static View after(View view, int64_t tokens) {
    view.data = static_cast<char*>(view.data) + tokens * view.token * bytes_of(view.type);
    return view;
  }
  Recurrent after_whole_chunks(Delta& job) {
    const int64_t whole = call_.tokens / chunk * chunk;
    View scratch = call_.o;  // rows of the last chunk that nobody reads
    scratch.type = Type::f32, scratch.dim = 1, scratch.head = call_.value_dim;
    scratch.token = static_cast<int64_t>(call_.heads) * call_.value_dim,
    scratch.batch = chunk * scratch.token;
    scratch.data = take<float>(call_.batch * scratch.batch);
    Recurrent rest = recurrent_job(scratch);
    if (!counting())
      for (View* view : {&rest.q, &rest.k, &rest.v, &rest.beta, &rest.level_scales, &rest.gate.view})
        *view = after(*view, whole);
    if (whole > 0) {
      job.live_levels = rest.levels;
      job.live = take<float>(static_cast<int64_t>(call_.sequences) * call_.heads * rest.levels *
                             call_.key_dim * call_.value_dim);
      job.live_position = take<int64_t>(call_.sequences);
      rest.initial = Moment{};
      rest.initial.data = job.live, rest.initial_levels = rest.levels;
      rest.initial_position = job.live_position;
    }
    return rest;
  }

  Recurrent recurrent_job(const View& o) {
    Recurrent job;
    job.q = call_.q, job.k = call_.k, job.v = call_.v, job.o = o, job.beta = call_.beta,
    job.level_scales = call_.level_scales;
    job.key_dim = call_.key_dim, job.value_dim = call_.value_dim, job.levels = call_.levels;
    job.extra = call_.normalize;
    job.delta = is_delta_rule();
    job.gate = call_.gate;
    job.scale = call_.scale;
    job.initial = call_.initial.moments[0], job.final = call_.final.moments[0];
    job.initial_levels = call_.initial.levels, job.final_levels = call_.final.levels;
    job.initial_position = call_.initial.position, job.final_position = call_.final.position;
    if (call_.levels > 0) {
      job.levels = std::max({call_.levels, call_.initial.levels, call_.final.levels});
      job.memory = take<float>(static_cast<int64_t>(call_.sequences) * call_.heads * job.levels *
                               call_.key_dim * (call_.value_dim + call_.normalize));
    }
    return job;
  }
  void recurrent() {
    if (levels_tuned_) return log_linear();
    if (delta_tuned_) return delta();
    if (delta_wide_) return delta_wide();
    const View o = call_.normalize ? rows(call_.value_dim + 1, Type::f32) : call_.o;
    const Recurrent job = recurrent_job(o);
    if (counting()) return;
    check(launch_recurrent(context_, job), "recurrence");
    if (call_.normalize)
      check(launch_divide(context_, o, call_.o, call_.value_dim, call_.epsilon), "division");
  }

  const Call& call_;
  char* base_;
  Context context_;
  std::optional<View> one_;
  bool tuned_ = false, levels_tuned_ = false, delta_tuned_ = false, delta_wide_ = false, stepping_ = false;
  size_t peak_ = 0;
};

// A call with other dimensions, its tensors in the workspace.
class Widened {
 public:
  Widened(const Call& original, int key_dim, int value_dim, char* workspace)
      : call(original), original_(original), base_(workspace) {
    call.key_dim = key_dim, call.value_dim = value_dim;
    widen(call.q, original.key_dim, key_dim);
    widen(call.k, original.key_dim, key_dim);
    widen(call.v, original.value_dim, value_dim);
    call.o = rows(1, value_dim);
    for (int i = 0; i < 4; ++i) {
      widen(call.initial, i, true);
      widen(call.final, i, false);
    }
  }
  void narrow() {
    check(launch_copy_rows(call.o, original_.o, call.batch, call.tokens, call.heads, call.value_dim,
                           original_.value_dim, call.stream));
    for (int i = 0; i < 4; ++i) {
      const Moment &wide = call.final.moments[i], &own = original_.final.moments[i];
      copy(wide, own, count(call.final), call.key_dim, columns(call, i), original_.key_dim,
           columns(original_, i));
      copy(companion_of(wide), companion_of(own), count(call.final), call.key_dim, 1, original_.key_dim, 1);
    }
  }
  Call call;
  size_t used = 0;
  cudaError_t error = cudaSuccess;

 private:
  static int columns(const Call& of, int moment) {
    const bool square = (moment == 0 && (of.op == Op::hla2 || of.op == Op::hla3)) ||
                        (moment == 1 && of.op == Op::hla3 && of.variant == Variant::unmasked);
    return square ? of.key_dim : of.value_dim;
  }
  int64_t count(const States& states) const {
    return static_cast<int64_t>(call.sequences) * call.heads * std::max(1, states.levels);
  }
  void check(cudaError_t e) {
    if (error == cudaSuccess) error = e;
  }
  void* take(int64_t bytes) {
    const size_t at = used;
    used += (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + 255) / 256 * 256;
    return base_ ? base_ + at : reinterpret_cast<char*>(256);
  }
  View rows(int group, int dim) {
    const int heads = call.heads / group;
    View view;
    view.type = call.type, view.group = group;
    view.head = dim, view.token = static_cast<int64_t>(heads) * dim, view.batch = call.tokens * view.token;
    view.data = take(call.batch * view.batch * bytes_of(call.type));
    return view;
  }
  void widen(View& view, int from, int to) {
    const View wide = rows(view.group, to);
    if (base_)
      check(launch_copy_rows(view, wide, call.batch, call.tokens, call.heads / view.group, from, to,
                             call.stream));
    view = wide;
  }
  void widen(States& states, int i, bool filled) {
    Moment& moment = states.moments[i];
    const int64_t floats = count(states) * call.key_dim * static_cast<int64_t>(sizeof(float));
    Moment wide;
    if (moment.data) wide.data = take(floats * columns(call, i));
    if (moment.companion) wide.companion = take(floats);
    if (filled) {
      copy(moment, wide, count(states), original_.key_dim, columns(original_, i), call.key_dim,
           columns(call, i));
      copy(companion_of(moment), companion_of(wide), count(states), original_.key_dim, 1, call.key_dim, 1);
    }
    moment = wide;
  }
  void copy(const Moment& from, const Moment& to, int64_t matrices, int from_rows, int from_columns,
            int to_rows, int to_columns) {
    if (base_ && from.data)
      check(launch_copy_matrices(from, to, matrices, from_rows, from_columns, to_rows, to_columns,
                                 call.stream));
  }

  const Call& original_;
  char* base_;
};

// The dimensions that the call would be widened to, the narrowest that have a tuned path; 0: none, or it has one.
std::pair<int, int> widened_dimensions(const Call& call) {
  if (call.batch == 0 || call.tokens == 0 || call.heads == 0 || call.sequences == 0) return {0, 0};
  if (Composer(call, nullptr).tuned()) return {0, 0};
  const auto candidates = [](int dim) {
    return std::vector<int>{(dim + 7) / 8 * 8, 64, 128, (dim + 127) / 128 * 128};
  };
  for (const int key_dim : candidates(call.key_dim))
    for (const int value_dim : candidates(call.value_dim))
      if (key_dim >= call.key_dim && value_dim >= call.value_dim &&
          Composer(Widened(call, key_dim, value_dim, nullptr).call, nullptr).tuned())
        return {key_dim, value_dim};
  return {0, 0};
}

}  // namespace

Outcome enqueue(const Call& call, char* workspace, size_t& bytes) {
  const auto [key_dim, value_dim] = widened_dimensions(call);
  if (key_dim == 0) {
    Composer composer(call, workspace);
    composer.compose();
    bytes = composer.used;
    return composer.outcome;
  }
  Widened widened(call, key_dim, value_dim, workspace);
  Composer composer(widened.call, workspace ? workspace + widened.used : nullptr);
  composer.compose();
  bytes = widened.used + composer.used;
  if (workspace && composer.outcome.error == cudaSuccess) widened.narrow();
  if (widened.error != cudaSuccess && composer.outcome.error == cudaSuccess)
    composer.outcome.error = widened.error, composer.outcome.where = "widening";
  return composer.outcome;
}

}  // namespace attest::cuda
