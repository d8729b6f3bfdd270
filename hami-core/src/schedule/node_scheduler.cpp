// NodeScheduler: the queue and the decisions.
#include "schedule/node_scheduler.hpp"

#include <algorithm>
#include <cstdint>

namespace hami {

using namespace policy;

namespace {

std::size_t quotient(std::size_t items, std::size_t by) noexcept { return items / by + (items % by != 0); }

}  // namespace

void NodeScheduler::add_instance(const Range& range, bool any_thread) {
  if (!instances_.empty()) {
    const Range& first = instances_.front().range;
    alike_ = alike_ && range.min == first.min && range.max == first.max;
  }
  idle_.insert(idle_.begin(), instances_.size());  // the first instance is used first
  instances_.push_back({range, any_thread});
}

std::size_t NodeScheduler::instances_in_use() const noexcept {
  if (!auto_instances_) return instances_.size();
  if (trial_.tries(Alternative::kMoreInstances)) return more_instances();
  return trial_.tries(Alternative::kFewerInstances) ? fewer_instances() : limit_;
}

// A request waits: one more instance would take it at once.
void NodeScheduler::note_waiting() noexcept {
  if (auto_instances_ && !forming_ && free_instances() == 0 && !idle_.empty())
    trial_.note_difference(Alternative::kMoreInstances);
}

// A batch starts: with fewer instances, some would have to wait.
void NodeScheduler::note_instances() noexcept {
  if (auto_instances_ && fewer_instances() < limit_ && busy() > fewer_instances())
    trial_.note_difference(Alternative::kFewerInstances);
}

bool NodeScheduler::start_waiting(bool below_min) noexcept {
  if (!forming_ || (!below_min && queue_.items() < min_items(*forming_))) return false;
  return nobody_comes_ = true;
}

std::size_t NodeScheduler::max_items(Index instance) const noexcept {
  return std::min(policy_.max, instances_[instance].range.max);
}

std::size_t NodeScheduler::min_items(Index instance) const noexcept {
  return std::max(policy_.min, instances_[instance].range.min);
}

void NodeScheduler::start_normal(Index instance) noexcept {
  instances_[instance].normal = true;
  normal_.start();
}

std::optional<NodeScheduler::Takes> NodeScheduler::takes_next(Index instance) const noexcept {
  const Request* const high = queue_.first(Takes::kHigh);
  const bool fills = high && cut(max_items(instance), Takes::kHigh).items >= min_items(instance);
  if (free_for_normal() == 0) return fills ? std::optional(Takes::kHigh) : std::nullopt;
  // A high request does not wait for normal ones in its own batch either.
  return fills && normal_.max_wait() > 0 && queue_.first() == high ? Takes::kHigh : Takes::kAll;
}

std::optional<double> NodeScheduler::predicted(std::size_t items) const noexcept {
  const std::optional<double> alone = solo_.of(items), shared = contended_.of(items);
  return shared && (others_work() || !alone) ? shared : alone;
}

// While nothing is known, small batches find it out.
std::size_t NodeScheduler::cap_of(Index instance, Takes which) const noexcept {
  const std::size_t cap = max_items(instance), floor = min_items(instance);
  if (which == Takes::kHigh || !normal_.is_short()) return cap;
  if (!predicted(floor)) return std::min(floor, cap);
  return items_within(normal_.max_wait(), floor, cap, [&](std::size_t items) { return *predicted(items); });
}

Nanoseconds NodeScheduler::exceeds_max_wait() const noexcept {
  if (normal_.max_wait() == 0 || !(solo_.measured(policy_.min) || contended_.measured(policy_.min))) return 0;
  const auto took = static_cast<Nanoseconds>(predicted(policy_.min).value_or(0));
  return took > normal_.max_wait() ? took : 0;
}

// If ranges differ: whether this instance should take the front of the queue. At least one instance should.
bool NodeScheduler::suits(Index instance, Takes which) const noexcept {
  if (alike_) return true;
  const Request& front = *queue_.first(which);
  if (!takes(instance, front)) return false;
  if (cut(max_items(instance), which).items >= min_items(instance)) return true;
  for (Index other = 0; other < instances_.size(); ++other)
    if (takes(other, front) && min_items(other) < min_items(instance)) return false;
  return true;
}

std::optional<NodeScheduler::Index> NodeScheduler::acquire_inline(std::size_t items, LaneName first, LaneName last,
                                                                  Nanoseconds moment) noexcept {
  if (stopping_ || !queue_.empty() || forming_ || free_instances() == 0) return std::nullopt;
  const bool normal = last == kNormalLane;
  if (normal && free_for_normal() == 0) return std::nullopt;
  for (std::size_t i = idle_.size(); i-- > 0;) {
    const Index instance = idle_[i];
    if (!instances_[instance].any_thread || items < min_items(instance) ||
        items > cap_of(instance, normal ? Takes::kAll : Takes::kHigh))
      continue;
    normal_.record_arrival(first);
    if (normal) start_normal(instance);
    if (auto_instances_) {
      begin_work(moment);
      instances_[instance].queued_at = moment;
    }
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    instances_[instance].contended = others_work();
    note_instances();
    return instance;
  }
  return std::nullopt;
}

// The smallest instance that can take the whole queue, else the largest; among equals the most recently idle one.
std::optional<NodeScheduler::Index> NodeScheduler::dispatch_idle() noexcept {
  if (queue_.empty() || forming_) return std::nullopt;
  note_waiting();
  if (free_instances() == 0) return std::nullopt;
  std::size_t best = idle_.size();
  for (std::size_t i = idle_.size(); i-- > 0;) {
    const std::optional<Takes> which = takes_next(idle_[i]);
    if (!which || !suits(idle_[i], *which)) continue;
    if (best < idle_.size()) {
      const std::size_t here = max_items(idle_[i]), there = max_items(idle_[best]);
      if (there >= queue_.items() ? here >= there || here < queue_.items() : here <= there) continue;
    }
    best = i;
    if (alike_) break;
  }
  if (best == idle_.size()) return std::nullopt;
  const Index instance = idle_[best];
  idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(best));
  instances_[instance].dispatched = true;
  ++dispatched_;
  return instance;
}

// How many of `items` one of `hands` free instances should take.
std::size_t NodeScheduler::items_per_instance(std::size_t items, std::size_t hands,
                                              std::size_t max_items) const noexcept {
  return policy_.mode == BatchingMode::kAdaptive ? share(items, hands, max_items, solo_, contended_) : max_items;
}

std::size_t NodeScheduler::instances_for(std::size_t items) const noexcept {
  const std::size_t hands = queue_.has_high() ? free_instances() : std::min(free_instances(), free_for_normal());
  if (hands == 0 || items == 0) return 0;
  return std::min(hands, quotient(items, items_per_instance(items, hands, policy_.max)));
}

// The target size, given whether other instances run.
TargetSize NodeScheduler::current_target(std::size_t cap) const noexcept {
  const TargetSize shared = contended_.target_batch_size(smallest_, cap),
                   alone = solo_.target_batch_size(smallest_, cap);
  return shared.items > 0 && (others_work() || alone.items == 0) ? shared : alone;
}

// The maximum size of the instance's next batch.
NodeScheduler::BatchSize NodeScheduler::next_batch_size(Index instance, Takes which) noexcept {
  const std::size_t floor = min_items(instance), cap = cap_of(instance, which);
  if (policy_.mode != BatchingMode::kAdaptive) return {cap, false};
  const std::size_t front = queue_.first(which)->items;
  smallest_ = std::min(std::max(floor, front), cap);  // smaller batches are not possible
  const TargetSize target = current_target(cap);
  const bool samples = batches_ >= last_sample_ + (target.settled ? kMemory : kSmooths);
  const std::size_t free = free_instances() + 1,
                    hands = which == Takes::kHigh ? free : std::min(free, free_for_normal());
  std::size_t size = target.items, sample = 0;
  if (target.items == 0 && policy_.is_auto)
    size = smallest_;
  else if (target.items == 0)  // a configured batching_timeout says that batching pays
    size = policy_.batching_timeout > 0 ? cap : kFirstSize;
  else if (hands > 1)
    size = items_per_instance(queue_.items(), hands, size);
  else if (target.settled && samples)
    sample = samples_less_ ? quotient(size, 2) : 2 * size;
  if (!target.settled && !samples)
    size = std::max(size, queue_.items_of_first_call());  // requests of one call stay together
  const auto possible = [&](std::size_t items) {          // whole requests: other sizes never occur
    return std::clamp(quotient(items, front) * front, std::min(floor, cap), cap);
  };
  if (sample > 0 && queue_.items() >= possible(sample)) return {possible(sample), true};
  return {possible(size), samples && !target.settled};
}

// The returns for which a batch is held. The trial decides whether this rule is used or the plain one, which starts with all
// that is ready. With greedy batching, nothing is learned and a configured batching_timeout says what a wait may cost.
Hold NodeScheduler::returns_worth_waiting(Index instance, Nanoseconds moment, const Cut& batch,
                                          std::size_t max_items) noexcept {
  if (!learns_returns() || forming_ || !returns_.expects_any()) return {};
  Ready ready{batch.count, batch.items, max_items, items_each_, moment - instances_[instance].free_since};
  queue_.for_each([&](const Request& request) { ready.deadline = std::min(ready.deadline, request.deadline); });
  if (ready.deadline != kNever) ready.deadline -= moment;
  if (policy_.mode == BatchingMode::kGreedy) {
    const double granted = static_cast<double>(std::min(policy_.batching_timeout, last_took_));
    return hold_for_returns(returns_, ready, moment, granted, [=](double) { return granted; });
  }
  // While the cost is unknown, a larger batch might be free: the trial finds out.
  const ServiceTime line = service_time().value_or(ServiceTime{static_cast<double>(last_took_), 0});
  const ServiceTimeModel& model = solo_.line() ? solo_ : contended_;
  const Hold hold = hold_for_returns(returns_, ready, moment, line.overhead, [&](double items) {
    return model.line() ? *model.of(static_cast<std::size_t>(items + 0.5)) : line.of(items);
  });
  if (hold.items == 0) return {};
  trial_.note_difference(Alternative::kHold);
  return holds_ != trial_.tries(Alternative::kHold) ? hold : Hold{};
}

NodeScheduler::Action NodeScheduler::hold(Index instance, Forming why, std::size_t ready_items,
                                          Nanoseconds until) noexcept {
  forming_ = instance;
  why_ = why;
  ready_items_ = ready_items;
  return {Action::kWait, until};
}

NodeScheduler::Action NodeScheduler::idle(Index instance) noexcept {
  mark_idle(instance);
  return {Action::kIdle};
}

// The batch of an instance has ended, and its callers were answered.
void NodeScheduler::complete(Instance& instance, std::size_t items, Nanoseconds moment) noexcept {
  const std::size_t requests = std::exchange(instance.requests, 0);
  if (requests == 0 || !learns_latency()) return;
  if (learns_returns()) returns_.answer(moment, requests);
  record_trial(instance, requests, items, moment);
}

void NodeScheduler::record_trial(const Instance& instance, std::size_t requests, std::size_t items,
                                 Nanoseconds moment) noexcept {
  const Nanoseconds worked = moment - std::exchange(worked_until_, moment);
  const std::optional<Alternative> better = trial_.record_batch({moment - instance.queued_at, requests, items, worked},
                                                                auto_instances_ ? instances_in_use() : 1);
  if (!better) return;
  switch (*better) {
    case Alternative::kHold: holds_ = !holds_; break;
    case Alternative::kMoreInstances: limit_ = more_instances(); break;
    case Alternative::kFewerInstances: limit_ = fewer_instances(); break;
  }
}

// Until when requests are held so that others can join them: batching_timeout, for fewer than `min` items or several requests.
Nanoseconds NodeScheduler::filled_until(const Cut& batch, bool enough) const noexcept {
  if (enough && (batch.count == 1 || policy_.mode == BatchingMode::kPerCall)) return 0;
  Nanoseconds longest = policy_.batching_timeout;
  if (const std::optional<ServiceTime> known = service_time(); known && enough)
    longest = std::min(longest, static_cast<Nanoseconds>(known->overhead));
  return after(queue_.first()->queued_at, longest);
}

NodeScheduler::Action NodeScheduler::next_action(Index instance, Nanoseconds moment, std::size_t completed_items,
                                                 RequestChain& taken, RequestChain& removed) noexcept {
  mark_arrived(instance);
  end_normal(instance);
  instances_[instance].ends = 0;
  normal_.observe(moment);
  const bool formed = forming_ == instance;
  const bool missed = formed && queue_.items() < ready_items_;
  const bool was_paced = formed && why_ == Forming::kPaced;
  const bool at_once = stopping_ || (formed && std::exchange(nobody_comes_, false));
  if (formed)
    forming_.reset();
  else
    instances_[instance].free_since = moment;
  if (completed_items > 0) complete(instances_[instance], completed_items, moment);
  if (!formed && busy() > instances_in_use()) return idle(instance);  // the others take the queue
  const std::size_t cap = max_items(instance);
  queue_.age(moment);
  queue_.remove_expired(moment, removed, cap, free_for_normal() > 0 ? Takes::kAll : Takes::kHigh);
  if (!removed.empty()) return {Action::kAgain};
  if (queue_.empty()) {
    if (formed || at_once || free_for_normal() == 0) return idle(instance);
    const std::size_t target = current_target(cap).items;
    const Hold returns = returns_worth_waiting(instance, moment, {}, target > 0 ? std::min(target, cap) : cap);
    return returns.items > 0 ? hold(instance, Forming::kReturns, returns.items, moment + returns.timeout)
                             : idle(instance);
  }
  const std::optional<Takes> which = takes_next(instance);
  if (!which || !suits(instance, *which)) return idle(instance);
  const auto [target_size, samples] = next_batch_size(instance, *which);
  const Cut batch = cut(target_size, *which);
  // The caller that would fill the batch may be waiting for capacity in the queue.
  const bool closed = batch.items >= target_size || batch.count < queue_.size() || full();
  const bool enough = batch.items >= min_items(instance);
  const bool starts = at_once || (enough && queue_.has_high());
  if (!closed && !starts) {
    // Another instance is forming a batch and takes these too, unless they are too few for it.
    if (forming_ && !(enough && (policy_.mode == BatchingMode::kPerCall || queue_.items() < min_items(*forming_))))
      return idle(instance);
    if (const Nanoseconds until = filled_until(batch, enough); moment < until && !forming_)
      return hold(instance, Forming::kFilling, target_size, until);
    if (const Hold returns = enough ? returns_worth_waiting(instance, moment, batch, target_size) : Hold{};
        returns.items > 0)
      return hold(instance, Forming::kReturns, batch.items + returns.items, moment + returns.timeout);
  }
  if (!enough) return refuse(batch, *which, min_items(instance), at_once, removed);
  if (shared_device_ && others_work() && !was_paced && !starts && !full()) {
    if (forming_) return idle(instance);  // the forming instance starts first
    if (const Nanoseconds start = pacer_.next_start(instances_in_use()); moment < start)
      return hold(instance, Forming::kPaced, kNoItems, start);
  }
  pacer_.record_start(moment);
  const StartReason reason = batch.items >= cap || full()  ? StartReason::kFull
                             : batch.count < queue_.size() ? StartReason::kTargetSize
                             : missed                      ? StartReason::kTimeout
                                                           : StartReason::kQueueEmpty;
  if (samples && batch.items >= target_size) {  // the sample is really run
    last_sample_ = batches_;
    samples_less_ = !samples_less_;
  }
  if (by_deadline_)
    instances_[instance].ends = after(moment, static_cast<Nanoseconds>(predicted(batch.items).value_or(0)));
  return take(instance, batch, *which, reason, taken);
}

NodeScheduler::Action NodeScheduler::take(Index instance, const Cut& batch, Takes which, StartReason reason,
                                          RequestChain& taken) noexcept {
  queue_.take(batch, taken, which);
  for (const Request* request = taken.first(); request && !instances_[instance].normal;
       request = RequestChain::after(*request))
    if (lane_of(request->priority) == kNormalLane) start_normal(instance);
  Instance& state = instances_[instance];
  state.contended = others_work();
  state.requests = batch.count;
  note_instances();
  if (learns_latency()) {
    const Nanoseconds first = taken.first()->queued_at;
    Nanoseconds later = 0;
    for (const Request* request = taken.first(); request; request = RequestChain::after(*request))
      later += request->queued_at - first;
    state.queued_at = first + later / static_cast<Nanoseconds>(batch.count);
    const double each = static_cast<double>(batch.items) / static_cast<double>(batch.count);
    items_each_ += (each - items_each_) / static_cast<double>(kSmooths);
  }
  return {Action::kRun, 0, reason};
}

NodeScheduler::Action NodeScheduler::refuse(const Cut& batch, Takes which, std::size_t min_items, bool closing,
                                            RequestChain& removed) noexcept {
  const Error error = error_from([&] {
    return Error(closing ? ErrorCode::kPipeClosed : ErrorCode::kRequest,
                 "node \"" + node_ + "\" takes at least " + std::to_string(min_items) + " items; only " +
                     std::to_string(batch.items) + " arrived " +
                     (closing ? "before the pipe was closed" : "within batching_timeout"));
  });
  RequestChain refused;
  queue_.take(batch, refused, which);
  for (Request* request = refused.first(); request; request = RequestChain::after(*request)) request->fail(error);
  removed.append(std::move(refused));
  return {Action::kAgain};
}

void NodeScheduler::complete_inline(Index instance, std::size_t items, Nanoseconds moment) noexcept {
  record_trial(instances_[instance], 1, items, moment);
}

void NodeScheduler::record_batch(Index instance, std::size_t items, Nanoseconds took) noexcept {
  ++batches_;
  last_took_ = took;
  pacer_.record_batch(took);
  if (!learns_times()) return;
  (instances_[instance].contended || others_work() ? contended_ : solo_).add(items, took);
}

std::optional<ServiceTime> NodeScheduler::service_time() const noexcept {
  if (policy_.mode != BatchingMode::kAdaptive) return std::nullopt;
  return solo_.line() ? solo_.line() : contended_.line();
}

std::size_t NodeScheduler::target_batch_size() const noexcept {
  return policy_.mode == BatchingMode::kAdaptive ? current_target(policy_.max).items : policy_.max;
}

}  // namespace hami
