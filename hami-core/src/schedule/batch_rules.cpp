// The rules of NodeScheduler: what a free instance does next, in the order of kRules.
#include <algorithm>
#include <tuple>

#include "schedule/node_scheduler.hpp"

namespace hami {

NodeScheduler::Action NodeScheduler::next_action(Index index, Nanoseconds moment, RequestChain& taken,
                                                 RequestChain& removed) noexcept {
  Instance& instance = instances_[index];
  release(instance);
  const bool waited = forming() == index, missed = waited && !is_complete();
  const std::optional<Forming> wait = waited ? std::exchange(forming_, std::nullopt) : std::nullopt;
  if (!wait) instance.free_since = moment;
  View view{
      index, instance, moment, wait, missed, stopping_ || (wait && wait->closed), max_items(index), min_items(index),
      taken, removed};
  for (const Rule& rule : kRules)
    if (Answer answer = (this->*rule.answer)(view)) {
      answer->rule = rule.name;
      return *answer;
    }
  return mark_idle(index);  // never: the last rule always answers
}

NodeScheduler::Answer NodeScheduler::enough_instances_run(View& view) noexcept {
  if (view.waited || busy() <= instances_in_use()) return std::nullopt;
  return mark_idle(view.index);
}

NodeScheduler::Answer NodeScheduler::remove_late_requests(View& view) noexcept {
  queue_.age(view.moment);
  remove_late(view.moment, view.removed, view.cap, free_for_normal() > 0 ? Takes::kAll : Takes::kHigh);
  return view.removed.empty() ? std::nullopt : Answer({Action::kAgain});
}

NodeScheduler::Answer NodeScheduler::wait_for_first_return(View& view) noexcept {
  if (!queue_.empty() || view.waited || view.at_once || free_for_normal() == 0) return std::nullopt;
  const std::size_t target = current_target(view.cap).items, most = target > 0 ? std::min(target, view.cap) : view.cap;
  const Hold returns = returns_worth_waiting(view.index, view.moment, {}, most);
  if (returns.requests == 0) return std::nullopt;
  return hold({view.index, Forming::kReturns, view.moment + returns.timeout, Forming::Wants{most, returns.requests}});
}

NodeScheduler::Answer NodeScheduler::nothing_to_run(View& view) noexcept {
  const std::optional<Takes> which = queue_.empty() ? std::nullopt : next_lanes(view.index);
  if (!which || !can_run(view.index, *which)) return mark_idle(view.index);
  choose_batch(view, *which);
  return std::nullopt;
}

void NodeScheduler::choose_batch(View& view, Takes which) noexcept {
  view.which = which;
  std::tie(view.target_size, view.samples) = next_batch_size(view.index, which, view.moment);
  const Cut all = cut(view.target_size, which);
  view.batch = in_time(all, which, view.target_size, view.floor, view.moment);
  if (costs_ && view.batch.start.is_front() && view.batch.count == all.count) choose_by_cost(view);
  view.enough = view.batch.items >= view.floor;
  view.starts = view.at_once || (view.enough && queue_.has_high());
  // The caller that would fill the batch may be waiting for capacity in the queue.
  const bool closed = view.batch.items >= view.target_size || view.batch.count < queue_.size() || full();
  view.may_grow = !closed && !view.starts;
}

// Of the requests that wait, those of similar cost that the model chooses; all, if these are too few for the instance.
void NodeScheduler::choose_by_cost(View& view) noexcept {
  if (config_.batching.mode == BatchingMode::kPerCall || !alike_) return;
  costs_->clear();
  queue_.for_each_equal(view.which, [&](const Request& request) { return costs_->add(request, view.moment); });
  const CostModel::Choice& choice = costs_->choose(view.target_size);
  view.by_cost = &choice;
  const Cut chosen = cut(choice.items, view.which, {nullptr, -kNever, choice.least, choice.most});
  if (chosen.items < view.floor || chosen.count == queue_.size()) return;
  view.batch = chosen;
  view.target_size = chosen.items;
}

// A batch that leaves out requests at the front of the queue, of which alone the requests were looked at.
NodeScheduler::Answer NodeScheduler::remove_late_of_batch(View& view) noexcept {
  if (view.batch.start.is_front()) return std::nullopt;
  queue_.remove_if(view.removed, view.batch.items, view.which, [&](Request& request) {
    return RequestQueue::fail_if_expired(request, view.moment);
  }, view.batch.start);
  return view.removed.empty() ? std::nullopt : Answer({Action::kAgain});
}

// The forming instance takes these too, unless they are too few for it.
NodeScheduler::Answer NodeScheduler::leave_to_forming(View& view) noexcept {
  if (!view.may_grow || !forming_) return std::nullopt;
  const bool others_do_not =
      config_.batching.mode == BatchingMode::kPerCall || queue_.items() < min_items(forming_->instance);
  return view.enough && others_do_not ? std::nullopt : Answer(mark_idle(view.index));
}

NodeScheduler::Answer NodeScheduler::wait_to_fill(View& view) noexcept {
  if (!view.may_grow || forming_) return std::nullopt;
  const Nanoseconds until =
      std::min(filled_until(view.batch, view.enough), view.enough ? latest_start(view.batch, view.moment) : kNever);
  if (view.moment >= until) return std::nullopt;
  return hold({view.index, Forming::kFilling, until, Forming::Wants{view.target_size, std::nullopt}});
}

NodeScheduler::Answer NodeScheduler::wait_for_returns(View& view) noexcept {
  if (!view.may_grow || !view.enough) return std::nullopt;
  const Hold returns = returns_worth_waiting(view.index, view.moment, view.batch, view.target_size);
  if (returns.requests == 0) return std::nullopt;
  return hold({view.index, Forming::kReturns, view.moment + returns.timeout,
               Forming::Wants{view.target_size, view.batch.count + returns.requests}});
}

NodeScheduler::Answer NodeScheduler::fail_below_minimum(View& view) noexcept {
  if (view.enough) return std::nullopt;
  const Error error = error_from([&] {
    return Error(view.at_once ? ErrorCode::kPipeClosed : ErrorCode::kRequest,
                 "node \"" + node_ + "\" takes at least " + std::to_string(view.floor) + " items; only " +
                     std::to_string(view.batch.items) + " arrived " +
                     (view.at_once ? "before the pipe was closed" : "within batching_timeout"));
  });
  RequestChain refused;
  queue_.take(view.batch, refused, view.which);
  for (Request* request = refused.first(); request; request = RequestChain::after(*request)) request->fail(error);
  view.removed.append(std::move(refused));
  return Action{Action::kAgain};
}

// Batches that start together end together, and then the device has no work until the callers return.
bool NodeScheduler::needs_slot(const View& view) const noexcept {
  const bool had_slot = view.waited && view.waited->reason == Forming::kSlot;
  return config_.shared_device && busy() > 1 && !had_slot && !view.starts && !full();
}

NodeScheduler::Answer NodeScheduler::leave_slot_to_forming(View& view) noexcept {
  return needs_slot(view) && forming_ ? Answer(mark_idle(view.index)) : std::nullopt;
}

NodeScheduler::Answer NodeScheduler::wait_for_slot(View& view) noexcept {
  if (!needs_slot(view)) return std::nullopt;
  const Nanoseconds slot = std::min(after(last_start_, to_nanoseconds(took_ / static_cast<double>(instances_in_use()))),
                                    latest_start(view.batch, view.moment));
  return view.moment < slot ? Answer(hold({view.index, Forming::kSlot, slot, std::nullopt})) : std::nullopt;
}

// Only with learned costs: an adaptive target is a share already. The times of one batch say nothing about several on a shared device.
NodeScheduler::Answer NodeScheduler::run_share(View& view) noexcept {
  if (!view.by_cost || view.batch.count == 1 || instances_.size() == 1 || view.floor > 1 || config_.shared_device)
    return std::nullopt;
  find_free(view);
  const std::size_t share = costs_->share(*view.by_cost, view.batch.items, free_in_);
  if (share >= view.batch.items) return std::nullopt;
  view.batch = cut(share, view.which, view.batch.start);
  return run_batch(view);
}

// When the other instances that may run such requests are free, the first one first: those that may start now at once. One whose
// batch takes far longer than usual does not count.
void NodeScheduler::find_free(const View& view) noexcept {
  const bool urgent = view.which == Takes::kHigh;
  const std::size_t most = urgent ? instances_in_use() : free_for_normal(instances_in_use(), 0),
                    may_start = urgent ? most : free_for_normal();  // this one is among them
  free_in_.assign(std::min(free_instances() + dispatched_, may_start - 1), 0);
  for (const Instance& instance : instances_) {
    if (&instance == &view.instance || instance.began == 0) continue;
    const double usual = costs_->time(static_cast<double>(instance.items), instance.cost);
    const double runs = static_cast<double>(view.moment - instance.began);
    if (runs < policy::kUncertain * usual) free_in_.push_back(std::max(0.0, usual - runs));
  }
  std::sort(free_in_.begin(), free_in_.end());
  if (free_in_.size() >= most) free_in_.resize(most - 1);
}

NodeScheduler::Answer NodeScheduler::run_batch(View& view) noexcept {
  last_start_ = view.moment;
  if (view.samples && view.batch.items >= view.target_size) {  // the sample is really run
    last_sample_ = batches_;
    samples_less_ = !samples_less_;
  }
  view.instance.began = view.moment;
  const StartReason reason = view.batch.items >= view.cap || full() ? StartReason::kFull
                             : view.batch.count < queue_.size()     ? StartReason::kTargetSize
                             : view.missed                          ? StartReason::kTimeout
                                                                    : StartReason::kQueueEmpty;
  take(view);
  if (config_.by_deadline)
    view.instance.ends = after(view.moment, to_nanoseconds(times_.of(view.batch.items).value_or(0) *
                                                           to_usual(view.batch.items, view.instance.cost)));
  return Action{Action::kRun, 0, reason};
}

NodeScheduler::Action NodeScheduler::hold(const Forming& forming) noexcept {
  forming_ = forming;
  return {Action::kWait, forming.until};
}

void NodeScheduler::take(View& view) noexcept {
  queue_.take(view.batch, view.taken, view.which);
  view.instance.items = view.batch.items;
  if (costs_) view.instance.cost = costs_->note_batch(view.taken);
  const Nanoseconds first = view.taken.first()->queued_at;
  Nanoseconds later = 0;
  bool normal = false;
  for (const Request* request = view.taken.first(); request; request = RequestChain::after(*request)) {
    later += request->queued_at - first;
    normal = normal || lane_of(request->priority) == kNormalLane;
  }
  const std::size_t count = view.batch.count;
  start(view.instance, normal, count, first + later / static_cast<Nanoseconds>(count));
  items_each_ = moving_mean(items_each_, static_cast<double>(view.batch.items) / static_cast<double>(count));
}

// The returns for which a batch is held. The trial decides whether this rule is used or the plain one, which starts with all
// that is ready. With greedy batching, nothing is learned and a configured batching_timeout says what a wait may cost.
Hold NodeScheduler::returns_worth_waiting(Index instance, Nanoseconds moment, const Cut& batch,
                                          std::size_t max_items) noexcept {
  if (!learns_returns() || forming_) return {};
  Ready ready{batch.count, batch.items, max_items, items_each_, moment - instances_[instance].free_since};
  TimeAfter time_after(moment);
  queue_.for_each([&](const Request& request) {
    if (request.deadline == kNever) return;
    ready.deadline = std::min(ready.deadline, to_nanoseconds(time_after.left(request, &TimeRange::usual)));
  });
  // While the cost is unknown, a larger batch might be free: the trial finds out.
  const double granted =
      is_adaptive() ? took_ : std::min(static_cast<double>(config_.batching.batching_timeout), took_);
  const std::optional<ServiceTime> line = service_time();
  const Hold hold = hold_for_returns(returns_, ready, moment, line ? line->overhead : granted, [&](double items) {
    return line ? *times_.of(static_cast<std::size_t>(items + 0.5)) : granted;
  });
  if (!is_adaptive() || hold.requests == 0) return hold;
  trial_.note_difference(PolicyTrial::kHold);
  return holds_ != (trial_.trying() == PolicyTrial::kHold) ? hold : Hold{};
}

// Until when requests are held so that others can join them: batching_timeout, for fewer than `min` items or several requests.
Nanoseconds NodeScheduler::filled_until(const Cut& batch, bool enough) const noexcept {
  if (enough && (batch.count == 1 || config_.batching.mode == BatchingMode::kPerCall)) return 0;
  Nanoseconds longest = config_.batching.batching_timeout;
  if (const std::optional<ServiceTime> known = service_time(); known && enough)
    longest = std::min(longest, to_nanoseconds(known->overhead));
  return after(queue_.first()->queued_at, longest);
}

}  // namespace hami
