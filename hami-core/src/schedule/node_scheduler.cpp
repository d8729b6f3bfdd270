// NodeScheduler: the queue and the decisions.
#include "schedule/node_scheduler.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace hami {
namespace {

constexpr double kSpreads = 0.95;   // spreading over instances must promise at most this fraction of the time
constexpr std::size_t kBegins = 4;  // items of a batch while no service time is known
constexpr std::uint64_t kTriesOther =
    128;  // batches between two samples of another size, so that the model stays current
constexpr std::uint64_t kTriesAtFirst = 8;     // the same at the start
constexpr Nanoseconds kWorthStaying = 50'000;  // a shorter wait ends before a thread has slept and woken up
constexpr Nanoseconds kPauses = 8;             // the maximum stagger, in pauses between two batches of an instance
constexpr Nanoseconds kShort = 16;      // without pauses: the maximum stagger is this part (1/16) of a batch's time
constexpr Nanoseconds kSmooths = 8;     // periods in the moving mean
constexpr Nanoseconds kBackWithin = 3;  // callers return within this part (1/3) of a batch's time
constexpr std::size_t kPacedStart = SIZE_MAX;  // never reached: the instance waits for a moment, not for items
constexpr unsigned kMaxMisses = 6;             // at most 2^6 batches between two attempts to wait for returning callers

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

void NodeScheduler::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept {
  pending_returns_ -= std::min(pending_returns_, request->items);
  queue_.push(std::move(request), moment, call);
}

bool NodeScheduler::begin_arrival(const Request& request) {
  asked_inside_ = true;
  arriving_.push_back(&request);
  const auto is_for_it = [&](Index instance) { return takes(instance, request); };
  return !queue_.empty() || std::none_of(idle_.begin(), idle_.end(), is_for_it);
}

void NodeScheduler::end_arrival(const Request& request) noexcept {
  arriving_.erase(std::remove(arriving_.begin(), arriving_.end(), &request), arriving_.end());
}

// Requests behind a blocked one are blocked too, unless that one leaves the queue: it expires, or its caller gives it up.
WaitLocation::Blocked NodeScheduler::blocked(const std::vector<Index>& unavailable, Nanoseconds moment) const {
  WaitLocation::Blocked blocked;
  std::vector<bool> comes(instances_.size(), true);
  for (Index instance : unavailable) comes[instance] = false;
  if (alike_ && std::find(comes.begin(), comes.end(), true) != comes.end()) return blocked;
  const auto taken = [&](const Request& request) {
    for (Index i = 0; i < instances_.size(); ++i)
      if (comes[i] && takes(i, request)) return true;
    return false;
  };
  const auto stays = [&](const Request& request) { return request.deadline >= moment && !request.abandoned(); };
  if (full() && !taken(*first()) && stays(*first())) {
    std::array<std::size_t, kLanes> staying = {};
    queue_.for_each([&](const Request& request) { staying[lane_of(request.priority)] += stays(request); });
    blocked.capacity = true;  // each full lane stays full
    for (const LaneName lane : {kUrgentLane, kHighLane, kNormalLane})
      if (full(lane) && !is_full(staying[lane])) blocked.capacity = false;
  }
  if (!asked_inside_) return blocked;
  bool closed = false;
  const auto look_at = [&](const Request& request) {
    if (!closed && taken(request)) return;
    if (const Dependency dependency = dependency_of(request); dependency.token && dependency.until >= moment)
      blocked.tokens.push_back(dependency.token.get());
    closed = closed || stays(request);
  };
  queue_.for_each(look_at);
  const bool closed_by_queue = closed;
  for (const Request* request : arriving_) {
    closed = closed_by_queue && !queue_.would_be_first(*request);
    look_at(*request);
  }
  return blocked;
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

// If ranges differ: whether this instance should take the front of the queue. At least one instance should.
bool NodeScheduler::suits(Index instance) const noexcept {
  if (alike_) return true;
  const std::size_t front = queue_.first()->items;
  if (front > max_items(instance)) return false;
  if (cut(max_items(instance)).items >= min_items(instance)) return true;
  for (Index other = 0; other < instances_.size(); ++other)
    if (front <= max_items(other) && min_items(other) < min_items(instance)) return false;
  return true;
}

std::optional<NodeScheduler::Index> NodeScheduler::acquire_inline(std::size_t items) noexcept {
  if (stopping_ || !queue_.empty() || forming_) return std::nullopt;
  for (std::size_t i = idle_.size(); i-- > 0;) {
    const Index instance = idle_[i];
    if (!instances_[instance].any_thread || items < min_items(instance) || items > max_items(instance)) continue;
    idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
    instances_[instance].contended = others_work();
    return instance;
  }
  return std::nullopt;
}

// The smallest instance that can take the whole queue, else the largest; among equals the most recently idle one.
std::optional<NodeScheduler::Index> NodeScheduler::dispatch_idle() noexcept {
  if (queue_.empty() || forming_) return std::nullopt;
  std::size_t best = idle_.size();
  for (std::size_t i = idle_.size(); i-- > 0;) {
    if (!suits(idle_[i])) continue;
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
  const std::size_t together = std::min(items, max_items), each = quotient(items, hands);
  if (policy_.mode != BatchingMode::kAdaptive || each >= together) return max_items;
  const auto either = [](const std::optional<double>& one, const std::optional<double>& other) {
    return one ? one : other;
  };
  const std::optional<double> spread = either(contended_.of(each), solo_.of(each));
  const std::optional<double> whole = either(solo_.of(together), contended_.of(together));
  return spread && *spread < kSpreads * *whole ? each : max_items;
}

std::size_t NodeScheduler::instances_for(std::size_t items) const noexcept {
  if (idle_.empty() || items == 0) return 0;
  return std::min(idle_.size(), quotient(items, items_per_instance(items, idle_.size(), policy_.max)));
}

// The target size, given whether other instances run.
TargetSize NodeScheduler::current_target(std::size_t cap) const noexcept {
  const TargetSize shared = contended_.target_batch_size(smallest_, cap),
                   alone = solo_.target_batch_size(smallest_, cap);
  return shared.items > 0 && (others_work() || alone.items == 0) ? shared : alone;
}

// The maximum size of the instance's next batch.
NodeScheduler::BatchSize NodeScheduler::next_batch_size(Index instance) noexcept {
  const std::size_t floor = min_items(instance), cap = max_items(instance);
  if (policy_.mode != BatchingMode::kAdaptive) return {cap, false};
  const std::size_t front = queue_.first()->items;
  smallest_ = std::min(std::max(floor, front), cap);  // smaller batches are not possible
  const TargetSize target = current_target(cap);
  const bool samples = batches_ >= try_again_ && (idle_.empty() || !target.settled);
  std::size_t size = target.items;
  if (target.items == 0)
    // Large batches may gain nothing, and engines keep the memory that they allocate for them. But a configured
    // batching_timeout says that batching pays.
    size = policy_.batching_timeout > 0 ? cap : kBegins;
  else if (!idle_.empty())
    size = items_per_instance(queue_.items(), idle_.size() + 1, size);
  else if (samples && target.settled)
    size = samples_less_ ? quotient(size, 2) : 2 * size;
  if (!target.settled && !samples)
    size = std::max(size, queue_.items_of_first_call());  // requests of one call stay together
  size = quotient(size, front) * front;                   // whole requests: other sizes never occur
  return {std::clamp(size, std::min(floor, cap), cap), samples};
}

// How long to wait for the callers of the batch that just completed; 0: not at all. They often return together, and the first
// of them should not occupy the instance alone.
Nanoseconds NodeScheduler::return_wait(Index instance, std::size_t completed_items) noexcept {
  if (policy_.mode != BatchingMode::kAdaptive || completed_items == 0 || queue_.items() + completed_items < 2) return 0;
  if (stopping_ || forming_ || !idle_.empty() || hurries(instance) || batches_ < hold_again_at_batch_) return 0;
  const std::optional<ServiceTime> known = service_time();
  if (!known && batches_ % kTriesAtFirst != 0) return 0;
  const Nanoseconds timeout = known ? static_cast<Nanoseconds>(known->overhead / 2) : last_took_ / 4;
  const std::size_t target = current_target(max_items(instance)).items;
  ready_items_ = std::min(target > 0 ? std::min(target, max_items(instance)) : max_items(instance),
                          queue_.items() + completed_items);
  return timeout >= kWorthStaying && queue_.items() < ready_items_ ? timeout : 0;
}

// The forming instance asks again.
void NodeScheduler::end_hold() noexcept {
  forming_.reset();
  if (!std::exchange(holding_for_returns_, false)) return;
  missed_returns_ = queue_.items() >= ready_items_ ? 0 : std::min(missed_returns_ + 1, kMaxMisses);
  hold_again_at_batch_ = batches_ + (missed_returns_ == 0 ? 0 : std::uint64_t{1} << missed_returns_);
}

NodeScheduler::Action NodeScheduler::wait(Index instance, std::size_t enough, Nanoseconds until) noexcept {
  forming_ = instance;
  ready_items_ = enough;
  return {Action::kWait, until};
}

// The callers of a completed batch will probably return together.
void NodeScheduler::expect_returns(Index instance, Nanoseconds moment, std::size_t completed_items) noexcept {
  if (moment >= returns_until_) pending_returns_ = 0;
  if (completed_items == 0 || std::exchange(instances_[instance].requests, 0) < 2) return;
  pending_returns_ += completed_items;
  returns_until_ = moment + std::min(policy_.batching_timeout, last_took_);
}

// Whether a batch may start staggered: it has several requests, and in greedy mode it is full.
bool NodeScheduler::is_paced(const Cut& batch, std::size_t cap) const noexcept {
  if (instances_.size() < 2 || full() || batch.count < 2) return false;
  return policy_.mode == BatchingMode::kAdaptive || (policy_.mode == BatchingMode::kGreedy && batch.items >= cap);
}

// When such a batch starts. Batches that start together on one device end together, and then the device is idle until the
// callers return. So starts are staggered: evenly over the period of an instance, or by a few pauses if that is less. The
// stagger itself and long pauses are excluded from the period; otherwise it would grow with each late batch. Without pauses
// (more callers wait than run) a short stagger still hides the host's work for each batch.
//
// Instances that do not share a device lose by it, so the policy is tried (PolicyTrial).
Nanoseconds NodeScheduler::paced_start(Index instance, Nanoseconds moment) noexcept {
  const Nanoseconds ended = instances_[instance].ended, away = moment - ended;
  if (away >= last_took_) return moment;  // the callers did not return; other requests arrived
  const Nanoseconds period = last_took_ + std::min(away, last_took_ / kBackWithin);
  period_ = period_ > 0 ? period_ + (period - period_) / kSmooths : period;
  const Nanoseconds evenly = period_ / static_cast<Nanoseconds>(instances_.size());
  const Nanoseconds longest = policy_.mode == BatchingMode::kAdaptive ? last_took_ : policy_.batching_timeout;
  const Nanoseconds apart = last_began_ + std::min({kPauses * away, evenly, longest});
  const Nanoseconds later = std::max(apart, std::min(last_began_ + evenly, ended + last_took_ / kShort));
  if (later <= moment) return moment;
  pacing_trial_.note_difference();
  return pacing_trial_.use_alternative() ? later : moment;
}

NodeScheduler::Action NodeScheduler::next_action(Index instance, Nanoseconds moment, std::size_t completed_items,
                                                 RequestChain& taken, RequestChain& removed) noexcept {
  mark_arrived(instance);
  const bool waited = forming_ == instance && queue_.items() < ready_items_;
  const bool had_paced_start = forming_ == instance && ready_items_ == kPacedStart;
  const bool at_once = stopping_ || (forming_ == instance && std::exchange(nobody_comes_, false));
  if (forming_ == instance)
    end_hold();
  else
    instances_[instance].free_since = moment;
  if (completed_items > 0) {
    pacing_trial_.record_batch(std::min(moment - last_ended_, 2 * last_took_),
                               completed_items);  // a longer pause is not part of its work
    instances_[instance].ended = last_ended_ = moment;
  }
  const std::size_t cap = max_items(instance);
  queue_.age(moment);
  queue_.remove_expired(moment, removed, cap);
  if (!removed.empty()) return {Action::kAgain};
  if (policy_.mode == BatchingMode::kGreedy) expect_returns(instance, moment, completed_items);
  if (const Nanoseconds timeout = return_wait(instance, completed_items)) {
    holding_for_returns_ = true;
    return wait(instance, ready_items_, moment + timeout);
  }
  if (queue_.empty() || !suits(instance)) {
    mark_idle(instance);
    return {Action::kIdle};
  }
  const auto [target_size, samples] = next_batch_size(instance);
  const Cut batch = cut(target_size);
  // The caller that would fill the batch may be waiting for capacity in the queue.
  const bool closed = batch.items >= target_size || batch.count < queue_.size() || full();
  const bool enough = batch.items >= min_items(instance);
  const bool starts = at_once || (enough && queue_.has_high());
  const bool alone = batch.count == 1 && enough && moment >= returns_until_;
  Nanoseconds company = policy_.batching_timeout;
  if (const std::optional<ServiceTime> known = service_time(); known && enough)
    company = std::min(company, static_cast<Nanoseconds>(known->overhead));
  Nanoseconds timeout = after(queue_.first()->queued_at, company);
  if (batch.count == 1 && enough) timeout = std::min(timeout, returns_until_);
  // Waits for returning callers even if the first request has waited long, while all instances were busy.
  const Nanoseconds until = std::min(returns_until_, after(instances_[instance].free_since, company));
  const bool returning =
      moment >= timeout && moment < until && pending_returns_ > 0 && batches_ >= hold_again_at_batch_;
  if (!closed && !alone && !starts && (moment < timeout || returning) &&
      (policy_.mode != BatchingMode::kPerCall || !enough)) {
    if (!forming_) {
      holding_for_returns_ = returning;
      return returning ? wait(instance, std::min(target_size, queue_.items() + pending_returns_), until)
                       : wait(instance, target_size, timeout);
    }
    if (!enough || !holding_for_returns_ ||
        policy_.mode == BatchingMode::kGreedy) {  // another instance is forming a batch and takes these too
      mark_idle(instance);
      return {Action::kIdle};
    }
  }
  if (!enough) return refuse(batch, min_items(instance), at_once, removed);
  if (!had_paced_start && !starts && is_paced(batch, cap)) {
    const Nanoseconds begins = paced_start(instance, moment);
    if (forming_ && (policy_.mode == BatchingMode::kGreedy ||
                     pacing_trial_.use_alternative())) {  // the forming instance starts first
      mark_idle(instance);
      return {Action::kIdle};
    }
    if (moment < begins) return wait(instance, kPacedStart, begins);
  }
  last_began_ = moment;
  const StartReason reason = batch.items >= cap || full()  ? StartReason::kFull
                             : batch.count < queue_.size() ? StartReason::kTargetSize
                             : waited                      ? StartReason::kTimeout
                                                           : StartReason::kQueueEmpty;
  if (samples) {
    try_again_ = batches_ + std::clamp(batches_ / 4, kTriesAtFirst, kTriesOther);
    samples_less_ = !samples_less_;
  }
  return take(instance, batch, reason, taken);
}

NodeScheduler::Action NodeScheduler::take(Index instance, const Cut& batch, StartReason reason,
                                          RequestChain& taken) noexcept {
  queue_.take(batch, taken);
  instances_[instance].contended = others_work();
  instances_[instance].requests = batch.count;
  return {Action::kRun, 0, reason};
}

NodeScheduler::Action NodeScheduler::refuse(const Cut& batch, std::size_t min_items, bool closing,
                                            RequestChain& removed) noexcept {
  const Error error = error_from([&] {
    return Error(closing ? ErrorCode::kPipeClosed : ErrorCode::kRequest,
                 "node \"" + node_ + "\" takes at least " + std::to_string(min_items) + " items; only " +
                     std::to_string(batch.items) + " arrived " +
                     (closing ? "before the pipe was closed" : "within batching_timeout"));
  });
  RequestChain refused;
  queue_.take(batch, refused);
  for (Request* request = refused.first(); request; request = RequestChain::after(*request)) request->fail(error);
  removed.append(std::move(refused));
  return {Action::kAgain};
}

void NodeScheduler::record_batch(Index instance, std::size_t items, Nanoseconds took) noexcept {
  ++batches_;
  last_took_ = took;
  if (policy_.mode != BatchingMode::kAdaptive || policy_.max < 2) return;
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
