#include "fuzz/schedule.hpp"

#include <algorithm>

namespace attest {
namespace {

constexpr int batches_ahead = 2;

// In no unit: of one task beside another.
double expected_work(const HuntTask& task) {
  const Case& c = task.input.shape;
  if (takes_seconds(task)) return 1e9;
  return 1000 + static_cast<double>(*c.tokens * c.batch * c.heads * c.key_dim * (c.key_dim + c.value_dim));
}

}  // namespace

HuntSchedule::HuntSchedule(HuntSteps& steps, const HuntSpread& spread)
    : steps_(steps), spread_(spread), ready_(static_cast<std::size_t>(spread.queues)) {
  for (int i = 0; i < batches_ahead; ++i) draw();
}

void HuntSchedule::draw() {
  std::vector<HuntTask> tasks = steps_.draw();
  if (tasks.empty()) return;
  batches_.emplace_back();
  std::vector<Place> places;
  for (HuntTask& task : tasks) {
    const bool apart = spread_.slow_lag > 0 && takes_seconds(task) && task.number > 0;
    Batch& batch = apart ? slow_.emplace_back() : batches_.back();
    if (apart) batch.due = drawn_ + spread_.slow_lag;
    places.push_back({&batch, batch.tasks.size(), false});
    batch.tasks.push_back(std::move(task)), batch.replies.emplace_back();
  }
  ++drawn_;
  enqueue(std::move(places));
}

// To the queue with the least to do, as far as the tasks themselves tell.
void HuntSchedule::enqueue(std::vector<Place> places) {
  if (spread_.sorted)
    std::ranges::stable_sort(places, std::ranges::greater(),
                             [](const Place& place) { return expected_work(place.task()); });
  std::vector<double> work(ready_.size());
  for (const Place& place : places) {
    const auto least = static_cast<std::size_t>(std::ranges::min_element(work) - work.begin());
    ready_[least].push_back(place), work[least] += expected_work(place.task());
    ++place.batch->open;
  }
}

std::optional<HuntSchedule::Errand> HuntSchedule::next(std::size_t queue) {
  std::deque<Place>& ready = ready_[queue];
  while (!ready.empty() && !steps_.over(ready.front().task())) {
    const Place place = ready.front();
    ready.pop_front();
    if (auto reply = steps_.known(place.task())) {
      reply_to(place, *std::move(reply));
      continue;
    }
    out_[++tickets_] = place;
    return Errand{tickets_, place.task()};
  }
  return std::nullopt;
}

void HuntSchedule::answered(std::size_t ticket, HuntReply reply) {
  const Place place = out_.at(ticket);
  out_.erase(ticket);
  reply_to(place, std::move(reply));
}

void HuntSchedule::reply_to(const Place& place, HuntReply reply) {
  Batch& batch = *place.batch;
  steps_.note(place.task(), reply);
  (place.settles ? batch.settled[place.at] : batch.replies[place.at]) = std::move(reply);
  --batch.open, ++replies_;
  advance();
}

bool HuntSchedule::look_at(Batch& batch) {
  if (batch.open == 0 && !batch.looked_at) {
    batch.looked_at = true, batch.settling = steps_.settling(batch.tasks, batch.replies);
    std::vector<Place> places;
    for (const auto& [at, task] : batch.settling) places.push_back({&batch, at, true});
    enqueue(std::move(places));
  }
  return batch.open == 0;
}

void HuntSchedule::advance() {
  while (!batches_.empty() || !slow_.empty()) {
    const bool slow = !slow_.empty() && (batches_.empty() || slow_.front().due <= learnt_);
    std::list<Batch>& first = slow ? slow_ : batches_;
    if (!look_at(first.front())) return;
    learn(first.front());
    first.pop_front();
    if (slow) continue;
    ++learnt_;
    draw();
  }
}

void HuntSchedule::learn(const Batch& batch) {
  for (std::size_t i = 0; i < batch.tasks.size(); ++i) {
    const auto settled = batch.settled.find(i);
    steps_.learn(batch.tasks[i], batch.replies[i],
                 settled == batch.settled.end() ? nullptr : &settled->second);
  }
}

bool HuntSchedule::finished() const {
  return out_.empty() && std::ranges::all_of(ready_, [this](const std::deque<Place>& ready) {
           return ready.empty() || steps_.over(ready.front().task());
         });
}

// A failure that was to be settled, and was not, is one whose shrinking did not finish.
void HuntSchedule::close() {
  for (std::list<Batch>* list : {&batches_, &slow_}) {
    for (Batch& batch : *list) {
      if (!batch.looked_at) batch.settling = steps_.settling(batch.tasks, batch.replies);
      for (const auto& [at, task] : batch.settling) batch.settled.try_emplace(at);
      learn(batch);
    }
    list->clear();
  }
}

}  // namespace attest
