// NodeScheduler: which instance runs how many requests, and when.
#include "schedule/node_scheduler.hpp"

namespace hami {

using namespace policy;

namespace {

std::size_t quotient(std::size_t items, std::size_t by) noexcept { return items / by + (items % by != 0); }

}  // namespace

void NodeScheduler::add_instance(const Range& range, bool any_thread) {
  idle_.insert(idle_.begin(), instances_.size());  // the first instance is used first
  instances_.push_back({range, any_thread});
  const Range& first = instances_.front().range;
  alike_ = alike_ && range.min == first.min && range.max == first.max;
}

std::size_t NodeScheduler::max_items(Index instance) const noexcept {
  return std::min(config_.batching.max, instances_[instance].range.max);
}

std::size_t NodeScheduler::min_items(Index instance) const noexcept {
  return std::max(config_.batching.min, instances_[instance].range.min);
}

bool NodeScheduler::start_waiting(bool below_min) noexcept {
  if (!forming_ || (!below_min && queue_.items() < min_items(*forming_))) return false;
  ready_items_ = 0;
  return true;
}

// With an alternative to the current policy: twice as many instances, or half.
std::size_t NodeScheduler::instances_with(std::optional<Alternative> alternative) const noexcept {
  if (!config_.auto_instances) return instances_.size();
  const std::size_t least = config_.reserve + 1, now = std::max(limit_, least);
  if (alternative == PolicyTrial::kMoreInstances) return std::min(2 * now, instances_.size());
  return alternative == PolicyTrial::kFewerInstances ? std::max((now + 1) / 2, least) : now;
}

// One more instance would take at once a request that waits; with fewer, a batch that runs would have to wait.
void NodeScheduler::note_instances() noexcept {
  if (!config_.auto_instances) return;
  if (!queue_.empty() && !forming_ && free_instances() == 0 && !idle_.empty())
    trial_.note_difference(PolicyTrial::kMoreInstances);
  const std::size_t fewer = instances_with(PolicyTrial::kFewerInstances);
  if (fewer < instances_with(std::nullopt) && busy() > fewer) trial_.note_difference(PolicyTrial::kFewerInstances);
}

// How many of `instances` may start batches of normal requests, while `running` of them run some.
std::size_t NodeScheduler::free_for_normal(std::size_t instances, std::size_t running) const noexcept {
  return instances > running + config_.reserve ? instances - running - config_.reserve : 0;
}

void NodeScheduler::note_arrival(LaneName lane, Nanoseconds moment) noexcept {
  if (all_idle() && queue_.empty()) worked_until_ = moment;
  if (learns_returns()) returns_.arrive(moment);
  if (lane != kNormalLane) high_until_ = after(moment, kHighTraffic);
}

void NodeScheduler::start(Instance& instance, bool normal, std::size_t requests, Nanoseconds queued_at) noexcept {
  normal_running_ += instance.normal = normal;
  instance.requests = requests;
  instance.queued_at = queued_at;
  note_instances();
}

// Its worker has come, or its batch has ended.
void NodeScheduler::release(Instance& instance) noexcept {
  dispatched_ -= std::exchange(instance.dispatched, false);
  normal_running_ -= std::exchange(instance.normal, false);
  instance.ends = 0;
}

NodeScheduler::Action NodeScheduler::mark_idle(Index instance) noexcept {
  release(instances_[instance]);
  idle_.push_back(instance);
  return {Action::kIdle};
}

// Which requests the next batch of an instance may take; empty: none of those that are queued.
std::optional<NodeScheduler::Takes> NodeScheduler::takes_next(Index instance) const noexcept {
  const Request* const high = queue_.first(Takes::kHigh);
  const bool fills = high && cut(max_items(instance), Takes::kHigh).items >= min_items(instance);
  if (free_for_normal() == 0) return fills ? std::optional(Takes::kHigh) : std::nullopt;
  // A high request does not wait for normal ones in its own batch either.
  return fills && config_.max_wait > 0 && queue_.first() == high ? Takes::kHigh : Takes::kAll;
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
  const bool normal = last == kNormalLane;
  if (stopping_ || !queue_.empty() || forming_ || free_instances() == 0 || (normal && free_for_normal() == 0))
    return std::nullopt;
  for (std::size_t i = idle_.size(); i-- > 0;) {
    const Index index = idle_[i];
    if (!instances_[index].any_thread || items < min_items(index) ||
        items > cap_of(index, normal ? Takes::kAll : Takes::kHigh, moment))
      continue;
    if (needs_moment()) note_arrival(first, moment);
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    start(instances_[index], normal, needs_moment(), moment);
    return index;
  }
  return std::nullopt;
}

// The smallest instance that can take the whole queue, else the largest; among equals the most recently idle one.
std::optional<NodeScheduler::Index> NodeScheduler::dispatch_idle() noexcept {
  if (queue_.empty() || forming_) return std::nullopt;
  note_instances();
  if (free_instances() == 0) return std::nullopt;
  const auto fit = [&](std::size_t place) {
    const std::size_t most = max_items(idle_[place]);
    return std::pair(std::min(most, queue_.items()), SIZE_MAX - most);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = idle_.size(); i-- > 0 && !(best && alike_);)
    if (const std::optional<Takes> which = takes_next(idle_[i]); which && suits(idle_[i], *which))
      if (!best || fit(i) > fit(*best)) best = i;
  if (!best) return std::nullopt;
  const Index index = idle_[*best];
  idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(*best));
  instances_[index].dispatched = true;
  ++dispatched_;
  return index;
}

std::size_t NodeScheduler::target_batch_size() const noexcept {
  return is_adaptive() ? current_target(config_.batching.max).items : config_.batching.max;
}

Nanoseconds NodeScheduler::exceeds_max_wait() const noexcept {
  if (config_.max_wait == 0 || !times_.measured(config_.batching.min)) return 0;
  const auto took = static_cast<Nanoseconds>(*times_.of(config_.batching.min));
  return took > config_.max_wait ? took : 0;
}

// The most items of a batch. While high requests come, one with normal requests must be short; while nothing is known, small
// batches find out how short.
std::size_t NodeScheduler::cap_of(Index instance, Takes which, Nanoseconds moment) const noexcept {
  const std::size_t cap = max_items(instance), floor = min_items(instance);
  if (which == Takes::kHigh || config_.max_wait == 0 || moment >= high_until_) return cap;
  if (!times_.of(floor)) return std::min(floor, cap);
  return items_within(config_.max_wait, floor, cap, [&](std::size_t items) { return *times_.of(items); });
}

// How many of `items` one of `hands` free instances takes: an equal share if that is known to end sooner than one batch of all.
std::size_t NodeScheduler::items_per_instance(std::size_t items, std::size_t hands,
                                              std::size_t max_items) const noexcept {
  const std::size_t together = std::min(items, max_items), each = quotient(items, hands);
  if (!is_adaptive() || each >= together) return max_items;
  const std::optional<double> spread = times_.of(each), whole = times_.of(together);
  return spread && *spread * (1 + kNegligible) < *whole ? each : max_items;
}

std::size_t NodeScheduler::instances_for(std::size_t items) const noexcept {
  const std::size_t hands = queue_.has_high() ? free_instances() : std::min(free_instances(), free_for_normal());
  if (hands == 0 || items == 0) return 0;
  return std::min(hands, quotient(items, items_per_instance(items, hands, config_.batching.max)));
}

// The maximum size of the instance's next batch; true: it is a sample of another size than the target, so that the model stays
// current.
std::pair<std::size_t, bool> NodeScheduler::next_batch_size(Index instance, Takes which, Nanoseconds moment) noexcept {
  const std::size_t floor = min_items(instance), cap = cap_of(instance, which, moment);
  if (!is_adaptive()) return {cap, false};
  const std::size_t front = queue_.first(which)->items;
  const auto possible = [&](std::size_t items) {  // whole requests: other sizes never occur
    return std::clamp(quotient(items, front) * front, std::min(floor, cap), cap);
  };
  smallest_ = std::min(std::max(floor, front), cap);
  const TargetSize target = current_target(cap);
  const bool samples = batches_ >= last_sample_ + (target.settled ? kMemory : kSmooths);
  const std::size_t free = free_instances() + 1,
                    hands = which == Takes::kHigh ? free : std::min(free, free_for_normal());
  std::size_t size = target.items;
  if (size == 0)  // a configured batching_timeout says that batching pays
    size = config_.batching.is_auto ? smallest_ : config_.batching.batching_timeout > 0 ? cap : kFirstSize;
  else if (hands > 1)
    size = items_per_instance(queue_.items(), hands, size);
  else if (const std::size_t other = possible(samples_less_ ? quotient(size, 2) : 2 * size);
           target.settled && samples && queue_.items() >= other)
    return {other, true};
  if (!target.settled && !samples) size = std::max(size, queue_.items_of_first_call());  // they stay together
  return {possible(size), samples && !target.settled};
}

// The returns for which a batch is held. The trial decides whether this rule is used or the plain one, which starts with all
// that is ready. With greedy batching, nothing is learned and a configured batching_timeout says what a wait may cost.
Hold NodeScheduler::returns_worth_waiting(Index instance, Nanoseconds moment, const Cut& batch,
                                          std::size_t max_items) noexcept {
  if (!learns_returns() || forming_) return {};
  Ready ready{batch.count, batch.items, max_items, items_each_, moment - instances_[instance].free_since};
  queue_.for_each([&](const Request& request) { ready.deadline = std::min(ready.deadline, request.deadline); });
  if (ready.deadline != kNever) ready.deadline -= moment;
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
    longest = std::min(longest, static_cast<Nanoseconds>(known->overhead));
  return after(queue_.first()->queued_at, longest);
}

NodeScheduler::Action NodeScheduler::hold(Index instance, Nanoseconds until, std::size_t items,
                                          std::size_t requests) noexcept {
  forming_ = instance;
  ready_items_ = items;
  ready_requests_ = requests;
  return {Action::kWait, until};
}

NodeScheduler::Action NodeScheduler::next_action(Index index, Nanoseconds moment, RequestChain& taken,
                                                 RequestChain& removed) noexcept {
  Instance& instance = instances_[index];
  release(instance);
  const bool formed = forming_ == index, missed = formed && !is_complete();
  const bool was_paced = formed && ready_items_ == kSlot;
  const bool at_once = stopping_ || (formed && ready_items_ == 0);
  if (formed)
    forming_.reset();
  else
    instance.free_since = moment;
  if (!formed && busy() > instances_in_use()) return mark_idle(index);  // the others take the queue
  const std::size_t cap = max_items(index), floor = min_items(index);
  queue_.age(moment);
  remove_late(moment, removed, cap, free_for_normal() > 0 ? Takes::kAll : Takes::kHigh);
  if (!removed.empty()) return {Action::kAgain};
  if (queue_.empty()) {
    if (formed || at_once || free_for_normal() == 0) return mark_idle(index);
    const std::size_t target = current_target(cap).items;
    const std::size_t most = target > 0 ? std::min(target, cap) : cap;
    const Hold returns = returns_worth_waiting(index, moment, {}, most);
    return returns.requests > 0 ? hold(index, moment + returns.timeout, most, returns.requests) : mark_idle(index);
  }
  const std::optional<Takes> which = takes_next(index);
  if (!which || !suits(index, *which)) return mark_idle(index);
  const auto [target_size, samples] = next_batch_size(index, *which, moment);
  const Cut batch = in_time(cut(target_size, *which), *which, target_size, floor, moment);
  if (batch.start.first) {  // only the front of the queue was looked at
    queue_.remove_if(removed, batch.items, *which,
                     [&](Request& request) { return RequestQueue::fail_if_expired(request, moment); }, batch.start);
    if (!removed.empty()) return {Action::kAgain};
  }
  // The caller that would fill the batch may be waiting for capacity in the queue.
  const bool closed = batch.items >= target_size || batch.count < queue_.size() || full();
  const bool enough = batch.items >= floor;
  const bool starts = at_once || (enough && queue_.has_high());
  if (!closed && !starts) {
    // Another instance is forming a batch and takes these too, unless they are too few for it.
    if (forming_ &&
        !(enough && (config_.batching.mode == BatchingMode::kPerCall || queue_.items() < min_items(*forming_))))
      return mark_idle(index);
    if (const Nanoseconds until = std::min(filled_until(batch, enough), enough ? latest_start(batch, moment) : kNever);
        moment < until && !forming_)
      return hold(index, until, target_size, SIZE_MAX);
    if (const Hold returns = enough ? returns_worth_waiting(index, moment, batch, target_size) : Hold{};
        returns.requests > 0)
      return hold(index, moment + returns.timeout, target_size, batch.count + returns.requests);
  }
  if (!enough) return refuse(batch, *which, floor, at_once, removed);
  if (config_.shared_device && busy() > 1 && !was_paced && !starts && !full()) {
    if (forming_) return mark_idle(index);  // the forming instance starts first
    // Batches that start together end together, and then the device has no work until the callers return.
    const auto slot = std::min(last_start_ + static_cast<Nanoseconds>(took_ / static_cast<double>(instances_in_use())),
                               latest_start(batch, moment));
    if (moment < slot) return hold(index, slot, kSlot, kSlot);
  }
  last_start_ = moment;
  if (samples && batch.items >= target_size) {  // the sample is really run
    last_sample_ = batches_;
    samples_less_ = !samples_less_;
  }
  if (config_.by_deadline) instance.ends = after(moment, static_cast<Nanoseconds>(times_.of(batch.items).value_or(0)));
  instance.began = moment;
  const StartReason reason = batch.items >= cap || full()  ? StartReason::kFull
                             : batch.count < queue_.size() ? StartReason::kTargetSize
                             : missed                      ? StartReason::kTimeout
                                                           : StartReason::kQueueEmpty;
  return take(instance, batch, *which, reason, taken);
}

NodeScheduler::Action NodeScheduler::take(Instance& instance, const Cut& batch, Takes which, StartReason reason,
                                          RequestChain& taken) noexcept {
  queue_.take(batch, taken, which);
  const Nanoseconds first = taken.first()->queued_at;
  Nanoseconds later = 0;
  bool normal = false;
  for (const Request* request = taken.first(); request; request = RequestChain::after(*request)) {
    later += request->queued_at - first;
    normal = normal || lane_of(request->priority) == kNormalLane;
  }
  start(instance, normal, batch.count, first + later / static_cast<Nanoseconds>(batch.count));
  items_each_ = moving_mean(items_each_, static_cast<double>(batch.items) / static_cast<double>(batch.count));
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

void NodeScheduler::record_batch(Index index, std::size_t items, Nanoseconds took, Nanoseconds moment) noexcept {
  Instance& instance = instances_[index];
  const double count = static_cast<double>(items);
  ++batches_;
  const Nanoseconds began = std::exchange(instance.began, 0);
  if (took > 0) took_ = moving_mean(took_, static_cast<double>(took));
  if (took > 0 && (learns_times() || began > 0)) times_.add(items, took, moment, began > 0 ? moment - began : took);
  if (instance.requests == 0) return;
  if (learns_returns()) returns_.answer(moment, instance.requests);
  const Nanoseconds worked = moment - std::exchange(worked_until_, moment);
  const std::optional<Alternative> better = trial_.record_batch(
      {static_cast<double>(moment - instance.queued_at) * count, static_cast<double>(worked), count},
      config_.auto_instances ? instances_in_use() : 1);
  if (better == PolicyTrial::kHold)
    holds_ = !holds_;
  else if (better)
    limit_ = instances_with(better);
}

}  // namespace hami
