#include "fuzz/shrink.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "fuzz/wide.hpp"
#include "gpu_checks/battery/call.hpp"

namespace attest {
namespace {

bool is_before(const ValueEdit& edit) { return edit.field.starts_with("before."); }
std::string_view own_name(const ValueEdit& edit) {
  const std::string_view name = edit.field;
  return is_before(edit) ? name.substr(7) : name;
}

constexpr std::string_view final_prefix = "dfinal_state.";
// Its first index is a sequence, packed or not.
bool is_of_sequence(const ValueEdit& edit) {
  return is_before(edit) || own_name(edit).starts_with(final_prefix);
}

// Which indices of a field run along what can be taken away.
enum class Axis { batch, token, head, key_column, value_column };
using Places = std::vector<std::size_t>;  // in the index of an edit

// dfinal_state.X [N, H, d, d or dv or nothing], with levels after H.
Places places_in_state(const ValueEdit& edit, Axis axis, const Declaration& declaration) {
  if (axis == Axis::batch) return {0};
  if (axis == Axis::head) return {1};
  const std::size_t keys = declaration.level_scales ? 3 : 2, last = edit.index.size() - 1;
  const std::string_view name = own_name(edit).substr(final_prefix.size());
  const auto moment = std::find_if(declaration.moments.begin(), declaration.moments.end(),
                                   [&](const Moment& m) { return m.name == name; });
  const bool values = moment != declaration.moments.end() && moment->value_columns;
  if (axis == Axis::value_column) return values ? Places{last} : Places{};
  if (axis != Axis::key_column) return {};
  return values || last == keys ? Places{keys} : Places{keys, last};
}

Places places_of(const ValueEdit& edit, Axis axis, const Declaration& declaration) {
  const std::string_view name = own_name(edit);
  if (name == "decay") return axis == Axis::head ? Places{0} : Places{};
  if (name.starts_with(final_prefix)) return places_in_state(edit, axis, declaration);
  if (axis == Axis::batch) return {0};
  if (axis == Axis::token) return {1};
  if (axis == Axis::head) return {2};
  if (axis == Axis::key_column && (name == "q" || name == "k")) return {3};
  if (axis == Axis::value_column && (name == "v" || name == "do")) return {3};
  return {};
}

// Without [first, last) along the axis, of the tokens themselves or of those before them (sequences: of what has one row
// for each of them).
std::vector<ValueEdit> without(const std::vector<ValueEdit>& edits, Axis axis, Index first, Index last,
                               bool before, bool both, const Declaration& declaration) {
  std::vector<ValueEdit> kept;
  for (ValueEdit edit : edits) {
    const bool own = axis == Axis::batch ? is_of_sequence(edit) : is_before(edit);
    bool gone = false;
    if (both || own == before)
      for (const std::size_t at : places_of(edit, axis, declaration)) {
        Index& index = edit.index[at];
        gone = gone || (index >= first && index < last);
        if (index >= last) index -= last - first;
      }
    if (!gone) kept.push_back(std::move(edit));
  }
  return kept;
}

// More tokens, heads or batch entries than these are not tried one range after another.
constexpr Index most_ranges = 1024, most_entries = 64;
// Of one input of the check width: a question takes a fraction of a second to seconds.
constexpr Index most_wide = 130;

class Shrinker {
 public:
  Shrinker(const BatteryContext& context, FuzzInput input, const std::function<bool(const FuzzInput&)>& fails,
           Index limit, const std::function<bool()>& stop)
      : context_(context), best_(std::move(input)), fails_(fails), limit_(limit), stop_(stop) {}

  // Of the inputs of the check width the first that fails; false: none.
  bool begin_wide() {
    for (FuzzInput& question :
         wide_questions({context_.kernel, context_.op, best_.shape.seed, Effort::quick}))
      if (accept(std::move(question))) return true;
    return false;
  }
  // The values of one place alone, which then may be one of many heads.
  void narrow(const std::optional<Difference>& worst) {
    if (worst) keep_place(*worst);
    join_entries();
    values();
  }

  Shrunk run() {
    simplify_drawn();
    accept(spelled_out(context_, best_));
    if (best_.zeros)
      for (bool again = true; again && !over();) {
        changed_ = false;
        structure();
        join_before();
        ranges(Axis::token), ranges(Axis::key_column), ranges(Axis::value_column);
        join_key_columns();
        values();
        simplify_options();
        again = changed_;
      }
    best_.shape = fitted(context_, best_.shape);  // what was asked: smaller sizes were widened to the limits
    return {std::move(best_), asked_, !over()};
  }

 private:
  std::vector<ValueEdit> cut_out(const std::vector<ValueEdit>& edits, Axis axis, Index first, Index last,
                                 bool before, bool both) const {
    return without(edits, axis, first, last, before, both, context_.declaration());
  }
  bool over() const { return asked_ >= limit_ || (stop_ && stop_()); }

  bool accept(FuzzInput candidate) {
    if (over()) return false;
    ++asked_;
    if (!fails_(candidate)) return false;
    best_ = std::move(candidate), changed_ = true;
    return true;
  }
  template <class Change>
  bool attempt(Change&& change) {
    FuzzInput candidate = best_;
    change(candidate);
    return accept(std::move(candidate));
  }

  // The drawn values may need an option that the few that are left do not.
  void simplify_options() {
    const Options& o = best_.shape.options;
    if (o.normalize)
      attempt([](FuzzInput& x) { x.shape.options.normalize = false, x.shape.options.epsilon = 0; });
    if (o.ridge != 0) attempt([](FuzzInput& x) { x.shape.options.ridge = 0; });
    if (o.scale) attempt([](FuzzInput& x) { x.shape.options.scale.reset(); });
    if (context_.declaration().decay && (!o.decay || *o.decay != Rational(1)))
      if (!attempt([](FuzzInput& x) { x.shape.options.decay = Rational(1); }))
        if (!o.decay || *o.decay != Rational(1) / 2)
          attempt([](FuzzInput& x) { x.shape.options.decay = Rational(1) / 2; });
    if (best_.linear_gates) attempt([](FuzzInput& x) { x.linear_gates = false; });
  }

  // On the input as it was drawn: what goes away here need not be spelled out.
  void simplify_drawn() {
    best_.shape = fitted(context_, best_.shape);
    simplify_options();
    if (best_.before > 0) attempt([](FuzzInput& x) { x.before = 0; });
    if (!best_.powers.empty()) attempt([](FuzzInput& x) { x.powers.clear(); });
    if (!best_.edits.empty()) attempt([](FuzzInput& x) { x.edits.clear(); });
    const Case& c = best_.shape;
    if (c.heads_q || c.heads_k || c.heads_v)
      attempt([](FuzzInput& x) { x.shape.heads_q = x.shape.heads_k = x.shape.heads_v = 0; });
    if (!c.packed.empty()) attempt([](FuzzInput& x) { x.shape.packed.clear(); });
    if (c.batch > 1) attempt([](FuzzInput& x) { x.shape.batch = 1; });
    if (c.heads > 1)
      attempt(
          [](FuzzInput& x) { x.shape.heads = 1, x.shape.heads_q = x.shape.heads_k = x.shape.heads_v = 0; });
  }

  // One head, batch entry or sequence less at a time, each of them once.
  void structure() {
    Case& c = best_.shape;
    if (c.batch * c.heads > most_entries) {
      gaps(Axis::batch, false);
      if (!c.heads_q && !c.heads_k && !c.heads_v) gaps(Axis::head, false);
      return;
    }
    for (Index b = c.batch; b-- > 0 && best_.shape.batch > 1;)
      attempt([&](FuzzInput& x) {
        x.edits = cut_out(x.edits, Axis::batch, b, b + 1, false, true), --x.shape.batch;
      });
    if (!c.heads_q && !c.heads_k && !c.heads_v)
      for (Index h = c.heads; h-- > 0 && best_.shape.heads > 1;)
        attempt([&](FuzzInput& x) {
          x.edits = cut_out(x.edits, Axis::head, h, h + 1, false, true), --x.shape.heads;
        });
    for (std::size_t s = best_.shape.packed.size(); s-- > 1 && best_.shape.packed.size() > 2;) {
      if (s + 1 >= best_.shape.packed.size()) continue;
      attempt([&](FuzzInput& x) {  // two neighbours joined
        x.shape.packed.erase(x.shape.packed.begin() + static_cast<std::ptrdiff_t>(s));
        x.edits =
            cut_out(x.edits, Axis::batch, static_cast<Index>(s), static_cast<Index>(s) + 1, true, false);
      });
    }
    if (best_.shape.packed.size() == 2) attempt([](FuzzInput& x) { x.shape.packed.clear(); });
  }

  Index extent(Axis axis, bool before) const {
    const Case& c = best_.shape;
    if (axis == Axis::token) return before ? best_.before : *c.tokens;
    if (axis == Axis::batch) return c.batch;
    if (axis == Axis::head) return c.heads;
    return axis == Axis::key_column ? c.key_dim : c.value_dim;
  }
  void cut(FuzzInput& x, Axis axis, Index first, Index last, bool before) const {
    const bool token = axis == Axis::token;
    x.edits = cut_out(x.edits, axis, first, last, before, !token);
    if (axis == Axis::key_column) x.shape.key_dim -= last - first;
    if (axis == Axis::value_column) x.shape.value_dim -= last - first;
    if (axis == Axis::batch) x.shape.batch -= last - first;
    if (axis == Axis::head) x.shape.heads -= last - first;
    if (token && before) x.before -= last - first;
    if (!token) return;
    if (!before) {
      *x.shape.tokens -= last - first;
      for (Index& end : x.shape.packed) end = end >= last ? end - (last - first) : std::min(end, first);
    }
    const Index levels = levels_of(*x.shape.tokens, x.before);  // fewer tokens may have fewer
    std::erase_if(x.edits,
                  [&](const ValueEdit& e) { return e.field == "level_scales" && e.index[3] >= levels; });
  }
  // All, a half, a quarter ... one; of tokens whole chunks as well, which leave the place in its chunk to what stays.
  std::set<Index, std::greater<>> sizes_to_cut(Axis axis, Index extent) const {
    std::set<Index, std::greater<>> sizes;
    for (Index size = extent; size > 0; size = size == 1 ? 0 : (size + 1) / 2) sizes.insert(size);
    if (axis != Axis::token) return sizes;
    const Index chunk = context_.chunk(), most = extent / chunk;
    for (Index chunks = most - 1; chunks > 0; chunks /= 2) sizes.insert(chunks * chunk);
    if (most > 0) sizes.insert({most * chunk, chunk});
    return sizes;
  }
  void ranges(Axis axis) {
    for (const bool before : {false, true}) {
      if (before && axis != Axis::token) continue;
      if (extent(axis, before) > most_ranges) {
        gaps(axis, before);
        continue;
      }
      const Index least = axis == Axis::token ? 0 : 1;
      for (const Index size : sizes_to_cut(axis, extent(axis, before)))
        for (Index first = extent(axis, before); first > 0 && !over();) {
          first = std::max<Index>(0, first - size);
          const Index last = std::min(first + size, extent(axis, before));
          if (extent(axis, before) - (last - first) < least) continue;
          attempt([&](FuzzInput& x) { cut(x, axis, first, last, before); });
        }
    }
  }

  // What lies between values, as much of it as can go: tried whole, then by halves.
  void gaps(Axis axis, bool before) {
    std::set<Index> used;
    for (const ValueEdit& edit : best_.edits)
      if (axis != Axis::token || is_before(edit) == before)
        for (const std::size_t at : places_of(edit, axis, context_.declaration()))
          used.insert(edit.index[at]);
    used.insert(extent(axis, before));
    std::vector<std::pair<Index, Index>> open;
    Index first = 0;
    for (const Index place : used) {
      if (place > first) open.emplace_back(first, place);
      first = place + 1;
    }
    if (std::ssize(open) > most_entries) return;
    const Index least = axis == Axis::token ? 0 : 1;
    for (auto gap = open.rbegin(); gap != open.rend(); ++gap) {
      Index left = gap->second - gap->first;
      for (Index size = left; size > 0 && !over();) {
        const auto without_some = [&](FuzzInput& x) { cut(x, axis, gap->first, gap->first + size, before); };
        if (size <= left && extent(axis, before) - size >= least && attempt(without_some))
          left -= size;
        else
          size /= 2;
      }
    }
  }

  // The sequence and the head that differ; of their tokens what the row that differs can depend on.
  void keep_place(const Difference& worst) {
    const bool row = worst.tensor == "o";
    if (worst.index.size() < (row ? 4 : 2)) return;
    const Index batch = worst.index[0], head = worst.index[row ? 2 : 1];
    const auto is_at = [&](const ValueEdit& edit, Axis axis, Index wanted) {
      for (const std::size_t at : places_of(edit, axis, context_.declaration()))
        if (edit.index[at] != wanted) return false;
      return true;
    };
    attempt([&](FuzzInput& x) {
      std::erase_if(x.edits, [&](const ValueEdit& edit) {
        return !is_at(edit, Axis::batch, batch) || !is_at(edit, Axis::head, head);
      });
    });
    if (!row) return;
    attempt([&](FuzzInput& x) {
      std::erase_if(x.edits, [&](const ValueEdit& edit) {
        return own_name(edit) == "q" && (is_before(edit) || !is_at(edit, Axis::token, worst.index[1]));
      });
    });
  }

  // Batch entries as so many more heads of one.
  void join_entries() {
    const Case& c = best_.shape;
    if (c.batch == 1 || c.batch * c.heads <= most_entries || c.heads_q || c.heads_k || c.heads_v) return;
    attempt([&](FuzzInput& x) {
      for (ValueEdit& edit : x.edits)
        for (const std::size_t entry : places_of(edit, Axis::batch, context_.declaration()))
          for (const std::size_t at : places_of(edit, Axis::head, context_.declaration()))
            edit.index[at] += edit.index[entry] * c.heads, edit.index[entry] = 0;
      x.shape.heads *= x.shape.batch, x.shape.batch = 1;
    });
  }

  // The tokens of the state as the first of the call: what fails without a state too needs none.
  void join_before() {
    if (best_.before == 0 || !best_.shape.packed.empty()) return;
    attempt([&](FuzzInput& x) {
      for (ValueEdit& edit : x.edits)
        if (is_before(edit))
          edit.field.erase(0, 7);
        else
          for (const std::size_t at : places_of(edit, Axis::token, context_.declaration()))
            edit.index[at] += x.before;
      *x.shape.tokens += x.before, x.before = 0;
    });
  }

  // What stands in one column moved to the first, whose own values stay.
  void join_key_columns() {
    for (Index column = best_.shape.key_dim - 1; column > 0 && !over(); --column)
      attempt([&](FuzzInput& x) {
        for (std::size_t i = 0; i < x.edits.size(); ++i) {
          ValueEdit& edit = x.edits[i];
          const bool row = own_name(edit) == "q" || own_name(edit) == "k";
          if (!row || edit.index[3] != column) continue;
          std::vector<Index> place = edit.index;
          place[3] = 0;
          const bool taken = std::any_of(x.edits.begin(), x.edits.end(), [&](const ValueEdit& other) {
            return other.field == edit.field && other.index == place;
          });
          if (!taken) edit.index = place;
        }
        cut(x, Axis::key_column, column, column + 1, false);
      });
  }

  void values() {
    // Ranges of values to 0.
    for (std::size_t size = best_.edits.size(); size > 0; size = size == 1 ? 0 : (size + 1) / 2)
      for (std::size_t first = best_.edits.size(); first > 0 && !over();) {
        first = first > size ? first - size : 0;
        attempt([&](FuzzInput& x) {
          const auto from = x.edits.begin() + static_cast<std::ptrdiff_t>(first);
          x.edits.erase(from, from + static_cast<std::ptrdiff_t>(std::min(size, x.edits.size() - first)));
        });
        first = std::min(first, best_.edits.size());
      }
    const auto is_one = [](const ValueEdit& e) {
      return e.value == 1 || own_name(e) == "g" || !std::isfinite(e.value);
    };
    if (!std::all_of(best_.edits.begin(), best_.edits.end(), is_one))
      attempt([&](FuzzInput& x) {
        for (ValueEdit& e : x.edits)
          if (!is_one(e)) e.value = 1;
      });
    for (std::size_t i = 0; i < best_.edits.size() && !over(); ++i) simplify(i);
  }
  // 1, -1, a small integer, a power of two, eight significant bits: the first of them that fails.
  void simplify(std::size_t i) {
    const double x = best_.edits[i].value;
    if (x == 1 || !std::isfinite(x)) return;
    std::vector<double> simpler;
    const bool gate = own_name(best_.edits[i]) == "g";
    if (!gate) simpler = {1, -1, std::copysign(2, x)};
    simpler.push_back(std::round(x));
    simpler.push_back(std::copysign(std::ldexp(1, std::ilogb(x)), x));
    simpler.push_back(std::ldexp(std::round(std::ldexp(x, 7 - std::ilogb(x))), std::ilogb(x) - 7));
    for (const double value : simpler) {
      if (value == x) return;
      if (value == 0 || (gate && value > 0)) continue;
      if (attempt([&](FuzzInput& candidate) { candidate.edits[i].value = value; })) return;
    }
  }

  const BatteryContext& context_;
  FuzzInput best_;
  const std::function<bool(const FuzzInput&)>& fails_;
  Index limit_, asked_ = 0;
  const std::function<bool()>& stop_;
  bool changed_ = false;
};

}  // namespace

Shrunk shrink(const BatteryContext& context, const FuzzInput& input,
              const std::function<bool(const FuzzInput&)>& fails, Index limit,
              const std::function<bool()>& stop, const std::function<std::optional<Difference>()>& worst) {
  const bool wide = is_battery(input.question);
  Shrinker shrinker(context, input, fails, wide ? std::min(limit, most_wide) : limit, stop);
  if (wide) {
    if (!shrinker.begin_wide()) return {input, 0, true};
    shrinker.narrow(worst ? worst() : std::nullopt);
  }
  return shrinker.run();
}

}  // namespace attest
