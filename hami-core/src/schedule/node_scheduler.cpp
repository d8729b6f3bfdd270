// NodeScheduler: the queue, the states of the instances, the size of their batches, and what is learned.
#include "schedule/node_scheduler.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace hami {

using namespace policy;

namespace {

std::size_t quotient(std::size_t items, std::size_t by) noexcept { return items / by + (items % by != 0); }

}  // namespace

void NodeScheduler::add_instance(const Range& range, bool any_thread) {
  idle_.insert(idle_.begin(), instances_.size());  // the first instance is used first
  instances_.push_back({range, any_thread});
  free_in_.reserve(instances_.size());
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
  if (!forming_ || (!below_min && queue_.items() < min_items(forming_->instance))) return false;
  return forming_->closed = true;
}

bool NodeScheduler::is_complete() const noexcept {
  if (forming_->closed) return true;
  const std::optional<Forming::Wants>& wants = forming_->wants;
  return wants && (queue_.items() >= wants->items || (wants->requests && queue_.size() >= *wants->requests));
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

void NodeScheduler::set_batching(const BatchingConfig& batching) noexcept {
  config_.batching = batching;
  const bool split = batching.mode != BatchingMode::kPerCall;  // else the requests of a call are a batch
  queue_.set_share(split ? std::max(batching.max, kAutoMax) : SIZE_MAX);
}

void NodeScheduler::learn_costs() {
  costs_ = std::make_unique<CostModel>();
  queue_.set_unordered();
}

void NodeScheduler::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call, std::size_t before) noexcept {
  note_arrival(lane_of(request->priority), moment);
  queue_.push(std::move(request), moment, call, before);
  note_instances();
}

bool NodeScheduler::begin_arrival(const Request& request) {
  config_.auto_instances = false;  // a limit that is raised later would be too late for the detection of deadlocks
  arriving_.push_back(&request);
  const bool may_start = lane_of(request.priority) != kNormalLane || free_for_normal() > 0;
  const auto is_for_it = [&](Index instance) { return may_start && takes(instance, request); };
  return !queue_.empty() || std::none_of(idle_.begin(), idle_.end(), is_for_it);
}

void NodeScheduler::end_arrival(const Request& request) noexcept {
  arriving_.erase(std::remove(arriving_.begin(), arriving_.end(), &request), arriving_.end());
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
std::optional<NodeScheduler::Takes> NodeScheduler::next_lanes(Index instance) const noexcept {
  const Request* const high = queue_.first(Takes::kHigh);
  const bool fills = high && cut(max_items(instance), Takes::kHigh).items >= min_items(instance);
  if (free_for_normal() == 0) return fills ? std::optional(Takes::kHigh) : std::nullopt;
  // A high request does not wait for normal ones in its own batch either.
  return fills && config_.max_wait > 0 && queue_.first() == high ? Takes::kHigh : Takes::kAll;
}

// If ranges differ: whether this instance should take the front of the queue. At least one instance should.
bool NodeScheduler::can_run(Index instance, Takes which) const noexcept {
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
  if (costs_ || stopping_ || !queue_.empty() || forming_ || free_instances() == 0 || (normal && free_for_normal() == 0))
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
    if (const std::optional<Takes> which = next_lanes(idle_[i]); which && can_run(idle_[i], *which))
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

std::optional<bool> NodeScheduler::waits_for_returns() const noexcept {
  return is_adaptive() && config_.batching.max > 1 ? std::optional(holds_) : std::nullopt;
}

// The trial compares the logarithms of costs, and its alternative is the opposite of the current policy.
std::optional<double> NodeScheduler::return_wait_gain() const noexcept {
  const Comparison& result = trial_.result(PolicyTrial::kHold);
  if (result.count() == 0) return std::nullopt;
  return 1 - std::exp(holds_ ? result.gain() : -result.gain());
}

Nanoseconds NodeScheduler::exceeds_max_wait() const noexcept {
  if (config_.max_wait == 0 || !times_.measured(config_.batching.min)) return 0;
  const Nanoseconds took = to_nanoseconds(*times_.of(config_.batching.min));
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

// How many of `items` one of `workers` free instances takes: an equal share if that is known to end sooner than one batch of all.
std::size_t NodeScheduler::items_per_instance(std::size_t items, std::size_t workers,
                                              std::size_t max_items) const noexcept {
  const std::size_t together = std::min(items, max_items), each = quotient(items, workers);
  if (!is_adaptive() || each >= together) return max_items;
  const std::optional<double> spread = times_.of(each), whole = times_.of(together);
  return spread && *spread * (1 + kNegligible) < *whole ? each : max_items;
}

std::size_t NodeScheduler::instances_for(std::size_t items) const noexcept {
  const std::size_t workers = queue_.has_high() ? free_instances() : std::min(free_instances(), free_for_normal());
  if (workers == 0 || items == 0) return 0;
  return std::min(workers, quotient(items, items_per_instance(items, workers, config_.batching.max)));
}

// The maximum size of the instance's next batch; true: it is a sample of another size than the target, so that the model stays
// current.
std::pair<std::size_t, bool> NodeScheduler::next_batch_size(Index instance, Takes which, Nanoseconds moment) noexcept {
  const std::size_t floor = min_items(instance), cap = cap_of(instance, which, moment);
  if (!is_adaptive() || costs_) return {cap, false};
  const std::size_t front = queue_.first(which)->items;
  const auto possible = [&](std::size_t items) {  // whole requests: other sizes never occur
    return std::clamp(quotient(items, front) * front, std::min(floor, cap), cap);
  };
  smallest_ = std::min(std::max(floor, front), cap);
  const TargetSize target = current_target(cap);
  const bool samples = batches_ >= last_sample_ + (target.settled ? kSampleEvery : kSearchEvery);
  const std::size_t free = free_instances() + 1,
                    workers = which == Takes::kHigh ? free : std::min(free, free_for_normal());
  std::size_t size = target.items;
  if (size == 0)  // a configured batching_timeout says that batching pays
    size = config_.batching.is_auto ? smallest_ : config_.batching.batching_timeout > 0 ? cap : kFirstSize;
  else if (workers > 1)
    size = items_per_instance(queue_.items(), workers, size);
  else if (const std::size_t other = possible(samples_less_ ? quotient(size, 2) : 2 * size);
           target.settled && samples && queue_.items() >= other)
    return {other, true};
  if (!target.settled && !samples) size = std::max(size, queue_.items_of_first_call());  // they stay together
  return {possible(size), samples && !target.settled};
}

void NodeScheduler::record_batch(Index index, std::size_t items, Nanoseconds took, Nanoseconds moment) noexcept {
  Instance& instance = instances_[index];
  const double count = static_cast<double>(items);
  ++batches_;
  const Nanoseconds began = std::exchange(instance.began, 0);
  if (took > 0) took_ = moving_mean(took_, static_cast<double>(took));
  Nanoseconds busy = began > 0 ? moment - began : took;
  if (took > 0 && costs_) {
    const bool was_known = costs_->known();
    costs_->learn(items, instance.cost, took);
    if (!was_known) times_ = ServiceTimeModel();
    const double usual = costs_->to_usual(items, instance.cost);
    took = to_nanoseconds(static_cast<double>(took) / usual);
    busy = to_nanoseconds(static_cast<double>(busy) / usual);
  }
  if (took > 0 && (learns_times() || began > 0)) times_.add(items, took, moment, busy);
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

// Requests behind a blocked one are blocked too, unless that one leaves the queue: it expires, or its caller gives it up.
WaitLocation::Blocked NodeScheduler::blocked(const std::vector<Index>& unavailable, Nanoseconds moment) const {
  std::vector<bool> comes(instances_.size(), true);
  std::size_t normal_batches = 0;
  for (const Index instance : unavailable) {
    comes[instance] = false;
    normal_batches += instances_[instance].normal;
  }
  // Normal requests cannot be taken; then they are not in front of the others.
  const bool reserved = free_for_normal(instances_.size(), normal_batches) == 0;
  const auto is_held = [&](const Request& request) { return reserved && lane_of(request.priority) == kNormalLane; };
  const auto taken = [&](const Request& request) {
    if (is_held(request)) return false;
    for (Index i = 0; i < instances_.size(); ++i)
      if (comes[i] && takes(i, request)) return true;
    return false;
  };
  const auto stays = [&](const Request& request) { return request.deadline >= moment && !request.abandoned(); };
  WaitLocation::Blocked blocked;
  bool closed = false;
  const auto look_at = [&](const Request& request) {
    if (!closed && taken(request)) return;
    if (const Dependency dependency = dependency_of(request); dependency.token && dependency.until >= moment)
      blocked.tokens.push_back(dependency.token.get());
    closed = closed || (!is_held(request) && stays(request));
  };
  std::array<std::size_t, kLanes> staying = {};
  queue_.for_each([&](const Request& request) {
    staying[lane_of(request.priority)] += stays(request);
    look_at(request);
  });
  const Request* const front = queue_.first(reserved && queue_.has_high() ? Takes::kHigh : Takes::kAll);
  if (full() && !taken(*front) && stays(*front)) {
    blocked.capacity = true;  // each full lane stays full
    for (const LaneName lane : {kUrgentLane, kHighLane, kNormalLane})
      if (full(lane) && !is_full(staying[lane])) blocked.capacity = false;
  }
  const bool closed_by_queue = closed;
  for (const Request* request : arriving_) {
    closed = closed_by_queue && !queue_.would_be_first(*request);
    look_at(*request);
  }
  return blocked;
}

}  // namespace hami
