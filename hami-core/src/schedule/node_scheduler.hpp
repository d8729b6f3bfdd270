// NodeScheduler: the queue of a node, and the decision which instance runs how many requests, and when. It has no threads, no
// locks and no clock: the dispatcher provides them, and a test can play any course of events.
//
// States of an instance:
//
//   idle        in idle(); its worker does nothing
//   dispatched  its worker was woken and has not called next_action() yet
//   forming     its worker sleeps until its batch may start; at most one instance of a node is forming
//   running     it runs a batch, completes requests, or asks for its next action
//
// Transitions; "asking" is dispatched, forming or running:
//
//   state       event                                   next state  action of the dispatcher
//   ----------  --------------------------------------  ----------  -----------------------------------------------
//   idle        dispatch_idle() returns it              dispatched  wakes the instance's worker
//   idle        acquire_inline() returns it             running     runs the batch on the caller's thread
//   dispatched  mark_idle(): no thread could be started idle        if all instances are idle, fails queued requests
//   running     mark_idle(): the inline batch ended     idle        dispatches an idle instance for the queue
//   asking      next_action() = kRun                    running     runs the batch `taken`
//   asking      next_action() = kWait                   forming     sleeps until `until`, or until batch_ready()
//   asking      next_action() = kAgain                  running     completes `removed`, then asks again
//   asking      next_action() = kIdle                   idle        returns the worker
//
// A forming instance waits for one of three reasons. A full queue, stop() or start_waiting() ends each of these waits early.
//
//   reason    mode              batch_ready() once                   `until`
//   --------  ----------------  -----------------------------------  --------------------------------------------
//   kFilling  all               the target size is queued            end of the first request's queue delay
//   kReturns  adaptive, greedy  the expected items are queued        the timeout of hold_for_returns()
//   kPaced    all               never by the number of items         the evenly spaced start (Pacer)
//
// A high or urgent request ends each of these waits too, if the batch has its minimum size.
//
// next_action() takes the first of these that applies:
//
//   1. kAgain  requests expired or were abandoned: it removes them
//   2. kIdle   no queued request suits the instance, or all are normal and the instance is reserved (NormalWork). If none is
//              queued at all, it may be kWait (kReturns)
//   3. kIdle   the batch is below the target size, and another instance is forming: that one takes these requests too
//   4. kWait   kFilling: the batch is below the target size, and its first request may be held (batching_timeout)
//   5. kWait   kReturns: the batch is below the target size, and waiting for returning callers saves more than it costs
//   6. kAgain  no further request will come, and the batch is below the minimum size: its requests fail
//   7. kWait   kPaced: another instance of the same device started a moment ago
//      kIdle   instead, if another instance is forming and starts first
//   8. kRun
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "request/wait_graph.hpp"
#include "schedule/batch_policy.hpp"
#include "schedule/normal_work.hpp"
#include "schedule/pacer.hpp"
#include "schedule/policy_trial.hpp"
#include "schedule/request_queue.hpp"
#include "schedule/service_time_model.hpp"

namespace hami {

// Which requests form a batch.
enum class BatchingMode {
  kPerCall,   // the requests of one call
  kGreedy,    // all that is queued, up to max
  kAdaptive,  // up to the target batch size, which is learned
};

struct BatchingConfig {
  BatchingMode mode = BatchingMode::kPerCall;
  std::size_t max = 1;  // items of a batch
  std::size_t min = 1;
  Nanoseconds batching_timeout = 0;  // maximum queue delay of a request that is held for others
  bool is_auto = false;              // `max` only limits what is learned, from the smallest size on
};

class NodeScheduler {
 public:
  using Index = std::size_t;  // of an instance

  explicit NodeScheduler(std::string node) : node_(std::move(node)) {}

  // Before the first request. `range`: what one forward takes; `any_thread`: it may run on a caller's thread.
  void add_instance(const Range& range, bool any_thread);
  void set_policy(const BatchingConfig& policy) { policy_ = policy; }
  // The instances share a device, so their batches start evenly spaced.
  void set_shared_device(bool shared) noexcept { shared_device_ = shared; }
  // As many instances run at a time as are measured to pay, at first one that runs normal requests. Call it after set_reserve.
  void set_auto_instances() noexcept {
    auto_instances_ = instances_.size() > 1;
    limit_ = least_instances();
  }
  void set_capacity(std::size_t requests) { capacity_ = requests; }  // of each lane
  void set_aging(Nanoseconds aging) { queue_.set_aging(aging); }
  void set_reserve(std::size_t instances) noexcept { normal_.set_reserve(instances); }  // fewer than there are
  void set_max_wait(Nanoseconds longest) noexcept { normal_.set_max_wait(longest); }
  void set_admission(bool by_deadline) noexcept { by_deadline_ = by_deadline; }

  // The queue.
  std::size_t waiting() const noexcept { return queue_.size(); }
  std::size_t queued_bytes() const noexcept { return queue_.bytes(); }
  // Each dispatched instance is about to take a request, so one more than the capacity may be queued for it.
  bool full(LaneName lane) const noexcept { return is_full(queue_.size(lane)); }
  bool full() const noexcept {  // any lane
    return queue_.size() >= capacity_ && (full(kNormalLane) || full(kHighLane) || full(kUrgentLane));
  }
  const Request* first() const noexcept { return queue_.first(); }
  // Requests of one call have the same `call`.
  void push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept;
  // When the request ends at the earliest by the learned times, if it arrives at `moment`. 0: nothing is known.
  Nanoseconds earliest_end(const Request& request, Nanoseconds moment) const noexcept;
  // Whether it may be queued: without admission by deadline, always.
  bool admits(const Request& request, Nanoseconds moment) noexcept;
  // For requests that a backend waits for: until `end_arrival`, the request counts as the last of the queue. False: an idle
  // instance can take it.
  bool begin_arrival(const Request& request);
  void end_arrival(const Request& request) noexcept;
  // The waits that are blocked, at least until `moment`, while the `unavailable` instances do not return.
  WaitLocation::Blocked blocked(const std::vector<Index>& unavailable, Nanoseconds moment) const;
  // Removes and fails requests that expired or were abandoned.
  void remove_expired(Nanoseconds moment, RequestChain& removed) noexcept { queue_.remove_expired(moment, removed); }
  RequestChain take_all() noexcept { return queue_.take_all(); }
  Ref<Request> remove_oldest(LaneName lane) noexcept { return queue_.remove_oldest(lane); }
  // From now on no request is held for others.
  void stop() noexcept { stopping_ = true; }
  bool stopping() const noexcept { return stopping_; }
  // True while all instances are idle, except one that is forming a batch.
  bool is_quiet() const noexcept { return idle_.size() + forming_.has_value() == instances_.size() && !batch_ready(); }
  // No further request will come: the forming batch starts, or fails if it is below the minimum size. Without `below_min`, such a
  // batch waits on. False: it started nothing.
  bool start_waiting(bool below_min) noexcept;

  // The idle instances, the most recently idle one last.
  const std::vector<Index>& idle() const noexcept { return idle_; }
  bool all_idle() const noexcept { return idle_.size() == instances_.size(); }
  void mark_idle(Index instance) noexcept {
    mark_arrived(instance);
    end_normal(instance);
    idle_.push_back(instance);
  }
  // Removes and returns an idle instance for a caller's own thread; empty: the items must queue.
  // `first` and `last`: the lanes of its first and last request in the order of the lanes.
  // `moment`: needed only where the number of instances is learned.
  std::optional<Index> acquire_inline(std::size_t items, LaneName first = kNormalLane, LaneName last = kNormalLane,
                                      Nanoseconds moment = 0) noexcept;
  // That batch has ended: as next_action says it of others.
  void complete_inline(Index instance, std::size_t items, Nanoseconds moment) noexcept;
  // Removes and returns the best idle instance for the queue; empty: there is none, or one is forming a batch already.
  std::optional<Index> dispatch_idle() noexcept;
  // How many instances may run at a time; and how many idle ones may start.
  std::size_t instances_in_use() const noexcept;
  std::size_t free_instances() const noexcept {
    return instances_in_use() > busy() ? std::min(idle_.size(), instances_in_use() - busy()) : 0;
  }
  bool learns_instances() const noexcept { return auto_instances_; }
  // For a node for which backends wait: a limit that is raised later would be too late for the detection of deadlocks.
  void use_all_instances() noexcept { auto_instances_ = false; }
  // How many idle instances should work on `items` that just arrived.
  std::size_t instances_for(std::size_t items) const noexcept;

  // Why a batch started: the first of these that holds.
  enum class StartReason {
    kFull,        // it had the maximum size, or the queue was full
    kTargetSize,  // it left requests in the queue, which may not join it
    kTimeout,     // a wait of the instance ended without the items it waited for
    kQueueEmpty,  // it took all that was queued
  };
  struct Action {
    enum What { kRun, kWait, kAgain, kIdle } what;
    Nanoseconds until = 0;
    StartReason reason = StartReason::kQueueEmpty;  // of kRun
  };
  // What a free instance does next, after it has completed a batch of `completed_items` (0: it was idle). kRun: `taken` is its
  // batch. kWait: it asks again at `until`, or as soon as batch_ready(). kAgain: it asks again after `removed` is completed.
  // kIdle: it is idle now.
  Action next_action(Index instance, Nanoseconds moment, std::size_t completed_items, RequestChain& taken,
                     RequestChain& removed) noexcept;
  // The forming instance, if any; and whether its batch can start.
  std::optional<Index> forming() const noexcept { return forming_; }
  bool batch_ready() const noexcept {
    return forming_ && (queue_.items() >= ready_items_ || full() || stopping_ || nobody_comes_ || hurries(*forming_));
  }
  // An instance has run a batch: updates the learned service time.
  void record_batch(Index instance, std::size_t items, Nanoseconds took) noexcept;

  // The learned time of a batch; empty: not known, or not adaptive. And the learned target size; 0: not known.
  std::optional<ServiceTime> service_time() const noexcept;
  std::size_t target_batch_size() const noexcept;
  // The time of the smallest batch if that is known to be longer than max_wait, else 0.
  Nanoseconds exceeds_max_wait() const noexcept;

 private:
  struct Instance {
    Range range;
    bool any_thread;
    bool dispatched = false;    // its worker was woken and has not asked yet
    bool normal = false;        // its batch has normal requests
    bool contended = false;     // another instance was running when its batch started
    std::size_t requests = 0;   // of the batch that it runs
    Nanoseconds queued_at = 0;  // the mean moment at which they arrived
    Nanoseconds free_since = 0;
    Nanoseconds ends = 0;  // when its batch ends, by the learned times; 0: not known
  };
  struct BatchSize {
    std::size_t items = 0;
    bool samples = false;  // another size than the target, so that the model stays current
  };
  using Cut = RequestQueue::Cut;
  using Takes = RequestQueue::Takes;

  bool is_full(std::size_t requests) const noexcept {
    return requests >= capacity_ && requests - capacity_ >= dispatched_;
  }
  void mark_arrived(Index instance) noexcept { dispatched_ -= std::exchange(instances_[instance].dispatched, false); }
  void start_normal(Index instance) noexcept;
  void end_normal(Index instance) noexcept {
    if (std::exchange(instances_[instance].normal, false)) normal_.end();
  }
  bool takes(Index instance, const Request& request) const noexcept {
    return request.items <= instances_[instance].range.max;
  }
  // Which requests the next batch of an instance may take; empty: none of those that are queued.
  std::optional<Takes> takes_next(Index instance) const noexcept;
  std::size_t max_items(Index instance) const noexcept;
  std::size_t min_items(Index instance) const noexcept;
  // `max_items`, or fewer if a batch of `which` must be short.
  std::size_t cap_of(Index instance, Takes which) const noexcept;
  std::optional<double> predicted(std::size_t items) const noexcept;
  bool learns_times() const noexcept {
    return (policy_.mode == BatchingMode::kAdaptive && policy_.max > 1) || normal_.max_wait() > 0 || by_deadline_;
  }
  Cut cut(std::size_t max_items, Takes which) const noexcept {
    return queue_.cut(max_items, policy_.mode == BatchingMode::kPerCall, which);
  }
  bool suits(Index instance, Takes which) const noexcept;
  // How many instances may start batches of normal requests.
  std::size_t free_for_normal() const noexcept { return normal_.free(instances_in_use()); }
  // Whether a batch starts at once, because a request of a higher class waits for it.
  bool hurries(Index instance) const noexcept { return queue_.has_high() && queue_.items() >= min_items(instance); }
  std::size_t busy() const noexcept { return instances_.size() - idle_.size(); }
  bool others_work() const noexcept { return busy() > 1; }
  // The alternatives to `limit_`: twice and half of it.
  std::size_t more_instances() const noexcept { return std::min(2 * limit_, instances_.size()); }
  std::size_t fewer_instances() const noexcept { return std::max((limit_ + 1) / 2, least_instances()); }
  std::size_t least_instances() const noexcept { return normal_.reserve() + 1; }
  void note_waiting() noexcept;
  void note_instances() noexcept;
  std::size_t items_per_instance(std::size_t items, std::size_t hands, std::size_t max_items) const noexcept;
  TargetSize current_target(std::size_t cap) const noexcept;
  BatchSize next_batch_size(Index instance, Takes which) noexcept;
  // Whether answered callers are expected back: where a batch may be held for them.
  bool learns_returns() const noexcept {
    return policy_.max > 1 && (policy_.mode == BatchingMode::kAdaptive ||
                               (policy_.mode == BatchingMode::kGreedy && policy_.batching_timeout > 0));
  }
  bool learns_latency() const noexcept { return auto_instances_ || learns_returns(); }
  Hold returns_worth_waiting(Index instance, Nanoseconds moment, const Cut& batch, std::size_t max_items) noexcept;
  Nanoseconds filled_until(const Cut& batch, bool enough) const noexcept;
  void complete(Instance& instance, std::size_t items, Nanoseconds moment) noexcept;
  void record_trial(const Instance& instance, std::size_t requests, std::size_t items, Nanoseconds moment) noexcept;
  void begin_work(Nanoseconds moment) noexcept {
    if (all_idle() && queue_.empty()) worked_until_ = moment;
  }
  // What the forming instance waits for.
  enum class Forming { kFilling, kReturns, kPaced };
  static constexpr std::size_t kNoItems = SIZE_MAX;  // it waits for a moment, not for items
  Action hold(Index instance, Forming why, std::size_t ready_items, Nanoseconds until) noexcept;
  Action idle(Index instance) noexcept;
  Action take(Index instance, const Cut& batch, Takes which, StartReason reason, RequestChain& taken) noexcept;
  Action refuse(const Cut& batch, Takes which, std::size_t min_items, bool closing, RequestChain& removed) noexcept;

  std::string node_;
  BatchingConfig policy_;
  std::size_t capacity_ = SIZE_MAX;
  std::vector<Instance> instances_;
  bool alike_ = true;  // all instances have the same range
  RequestQueue queue_;
  NormalWork normal_;
  std::vector<Index> idle_;     // never allocates: it begins with all instances
  std::size_t dispatched_ = 0;  // number of dispatched instances
  std::vector<const Request*> arriving_;
  bool asked_inside_ = false;  // a request that a backend waits for has arrived before
  bool by_deadline_ = false;
  std::size_t unreachable_ = 0;  // requests that could not end in time
  bool stopping_ = false;
  std::optional<Index> forming_;
  Forming why_ = Forming::kFilling;
  std::size_t ready_items_ = 0;  // items at which the forming batch starts
  bool nobody_comes_ = false;    // it starts with what is queued

  ServiceTimeModel solo_, contended_;  // without and with other instances running
  ReturnTimes returns_;
  PolicyTrial trial_;
  bool holds_ = false;           // batches are held for returning callers
  bool auto_instances_ = false;  // `limit_` is how many instances run at a time
  std::size_t limit_ = 0;
  Nanoseconds worked_until_ = 0;  // when the last batch ended, or the node had work again
  Pacer pacer_;
  bool shared_device_ = false;
  std::uint64_t batches_ = 0;
  std::uint64_t last_sample_ = 0;  // the batch count at which another size was sampled
  bool samples_less_ = false;      // the next sample is smaller than the target, not larger
  std::size_t smallest_ = 1;       // smallest possible batch of the current queue
  double items_each_ = 1;          // recent mean items of a request
  Nanoseconds last_took_ = 0;
};

}  // namespace hami
