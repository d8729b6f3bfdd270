// NodeScheduler: which instance runs how many requests, and when.
#include "schedule/node_scheduler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

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

void NodeScheduler::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept {
  note_arrival(lane_of(request->priority), moment);
  queue_.push(std::move(request), moment, call);
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
  if (!is_adaptive()) return {cap, false};
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
  view.batch = in_time(cut(view.target_size, which), which, view.target_size, view.floor, view.moment);
  view.enough = view.batch.items >= view.floor;
  view.starts = view.at_once || (view.enough && queue_.has_high());
  // The caller that would fill the batch may be waiting for capacity in the queue.
  const bool closed = view.batch.items >= view.target_size || view.batch.count < queue_.size() || full();
  view.may_grow = !closed && !view.starts;
}

// A batch that does not begin at the front of the queue, of which alone the requests were looked at.
NodeScheduler::Answer NodeScheduler::remove_late_of_batch(View& view) noexcept {
  if (!view.batch.start.first) return std::nullopt;
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
  const Nanoseconds slot =
      std::min(last_start_ + static_cast<Nanoseconds>(took_ / static_cast<double>(instances_in_use())),
               latest_start(view.batch, view.moment));
  return view.moment < slot ? Answer(hold({view.index, Forming::kSlot, slot, std::nullopt})) : std::nullopt;
}

NodeScheduler::Answer NodeScheduler::run_batch(View& view) noexcept {
  last_start_ = view.moment;
  if (view.samples && view.batch.items >= view.target_size) {  // the sample is really run
    last_sample_ = batches_;
    samples_less_ = !samples_less_;
  }
  if (config_.by_deadline)
    view.instance.ends = after(view.moment, static_cast<Nanoseconds>(times_.of(view.batch.items).value_or(0)));
  view.instance.began = view.moment;
  const StartReason reason = view.batch.items >= view.cap || full() ? StartReason::kFull
                             : view.batch.count < queue_.size()     ? StartReason::kTargetSize
                             : view.missed                          ? StartReason::kTimeout
                                                                    : StartReason::kQueueEmpty;
  take(view);
  return Action{Action::kRun, 0, reason};
}

NodeScheduler::Action NodeScheduler::hold(const Forming& forming) noexcept {
  forming_ = forming;
  return {Action::kWait, forming.until};
}

void NodeScheduler::take(View& view) noexcept {
  queue_.take(view.batch, view.taken, view.which);
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
