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
// A forming instance waits for one of three reasons (Forming). A full queue, stop() or start_waiting() ends each of these waits
// early, and so does a high or urgent request if the batch has its minimum size.
//
//   reason    mode              batch_ready() once                   `until`
//   --------  ----------------  -----------------------------------  --------------------------------------------
//   kFilling  all               the target size is queued            end of the first request's queue delay
//   kReturns  adaptive, greedy  the expected requests are queued     the timeout of hold_for_returns()
//   kSlot     all               never by the number of items         the evenly spaced start of a shared device
//
// next_action() asks the rules of kRules in their order; the first answer wins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/api.hpp"
#include "request/api.hpp"
#include "schedule/batch_policy.hpp"
#include "schedule/cost_model.hpp"
#include "schedule/policy_trial.hpp"
#include "schedule/request_queue.hpp"
#include "schedule/service_time_model.hpp"
#include "schedule/time_after.hpp"

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

struct NodeConfig {
  BatchingConfig batching;
  std::size_t capacity = SIZE_MAX / 2;  // requests of each lane
  std::size_t reserve = 0;              // instances that run no normal requests; fewer than there are
  Nanoseconds max_wait = 0;             // while high requests come, batches with normal ones end within it; 0: any
  bool by_deadline = false;             // requests that cannot end in time are not admitted
  bool shared_device = false;           // the instances share a device, so their batches start evenly spaced
  bool auto_instances = false;          // adds instances while throughput improves, from one for normal requests on
};

// A batch that waits.
struct Forming {
  enum Reason { kFilling, kReturns, kSlot };
  struct Wants {  // the batch starts once one of these is queued
    std::size_t items;
    std::optional<std::size_t> requests;  // empty: any number
  };

  std::size_t instance;
  Reason reason;
  Nanoseconds until;
  std::optional<Wants> wants;  // empty: it starts at `until`
  bool closed = false;         // no further request will come
};

class NodeScheduler {
 public:
  using Index = std::size_t;  // of an instance

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
    const char* rule = "";                          // the name of the rule that answered
  };

  explicit NodeScheduler(std::string node) : node_(std::move(node)) {}

  // Before the first request. `range`: what one forward takes; `any_thread`: it may run on a caller's thread.
  void add_instance(const Range& range, bool any_thread);
  NodeConfig& config() noexcept { return config_; }
  void set_batching(const BatchingConfig& batching) noexcept;
  // Requests have unequal costs, which decide which of them share a batch.
  void learn_costs();

  // The requests that wait. They enter by push().
  RequestQueue& queue() noexcept { return queue_; }
  // Each dispatched instance is about to take a request, so one more than the capacity may be queued for it.
  bool full(LaneName lane) const noexcept { return is_full(queue_.size(lane)); }
  bool full() const noexcept {  // any lane
    return queue_.size() >= config_.capacity && (full(kNormalLane) || full(kHighLane) || full(kUrgentLane));
  }
  // Requests of one call have the same `call`.
  void push(Ref<Request> request, Nanoseconds moment, std::uint64_t call, std::size_t before = 0) noexcept;
  // Fails a request that cannot end before its deadline, here and in the rest of its graph, by the learned times; true if it did.
  bool fail_if_late(Request& request, Nanoseconds moment) const noexcept;
  // Removes requests that expired, were abandoned, or cannot end before their deadline: all, or only those in front of the
  // first `items` others.
  void remove_late(Nanoseconds moment, RequestChain& removed, std::size_t items = SIZE_MAX,
                   RequestQueue::Takes which = RequestQueue::Takes::kAll) noexcept;
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
  Action mark_idle(Index instance) noexcept;
  // Removes and returns an idle instance for a caller's own thread; empty: the items must queue.
  // `first` and `last`: the lanes of its first and last request in the order of the lanes.
  // `moment`: needed only where needs_moment().
  std::optional<Index> acquire_inline(std::size_t items, LaneName first = kNormalLane, LaneName last = kNormalLane,
                                      Nanoseconds moment = 0) noexcept;
  bool needs_moment() const noexcept { return config_.auto_instances || config_.max_wait > 0; }
  // Removes and returns the best idle instance for the queue; empty: there is none, or one is forming a batch already.
  std::optional<Index> dispatch_idle() noexcept;
  // How many instances may run at a time; and how many idle ones may start.
  std::size_t instances_in_use() const noexcept { return instances_with(trial_.trying()); }
  std::size_t free_instances() const noexcept {
    return instances_in_use() > busy() ? std::min(idle_.size(), instances_in_use() - busy()) : 0;
  }
  // How many idle instances should work on `items` that just arrived.
  std::size_t instances_for(std::size_t items) const noexcept;

  // What a free instance does next. kRun: `taken` is its batch. kWait: it asks again at `until`, or as soon as batch_ready().
  // kAgain: it asks again after `removed` is completed. kIdle: it is idle now.
  Action next_action(Index instance, Nanoseconds moment, RequestChain& taken, RequestChain& removed) noexcept;
  // The forming instance, if any; and whether its batch can start.
  std::optional<Index> forming() const noexcept { return forming_ ? std::optional(forming_->instance) : std::nullopt; }
  bool batch_ready() const noexcept {
    return forming_ && (is_complete() || full() || stopping_ || is_urgent(forming_->instance));
  }
  // An instance has run a batch, and its callers were answered: updates what is learned. Before it asks for its next action.
  // `took`: 0: not known.
  void record_batch(Index instance, std::size_t items, Nanoseconds took, Nanoseconds moment) noexcept;

  // What the nodes before this one know about its time, after a batch of so many items: the least time of any batch of a request, and
  // the time of such a batch.
  SharedTime::Estimate estimate(std::size_t items, Nanoseconds moment) const noexcept;

  // The learned time of a batch; empty: not known, or not adaptive. And the learned target size; 0: not known.
  std::optional<ServiceTime> service_time() const noexcept { return is_adaptive() ? times_.line() : std::nullopt; }
  std::size_t target_batch_size() const noexcept;
  // Whether batches are held for returning callers: empty if that is not learned. And the part of the latency that this saves by
  // the trials so far; empty: none was compared.
  std::optional<bool> waits_for_returns() const noexcept;
  std::optional<double> return_wait_gain() const noexcept;
  std::optional<PolicyTrial::Alternative> trial() const noexcept { return trial_.trying(); }
  // Whether any of these is learned.
  bool has_policy() const noexcept {
    return (is_adaptive() && config_.batching.max > 1) || config_.auto_instances || config_.max_wait > 0 || costs_;
  }
  // The learned times of batches of unequal costs; null: all costs are equal.
  const CostModel* costs() const noexcept { return costs_.get(); }
  // Until when high traffic caps batches with normal requests; 0: it never did.
  Nanoseconds capped_until() const noexcept { return config_.max_wait > 0 ? high_until_ : 0; }
  // The time of the smallest batch if that is known to be longer than max_wait, else 0.
  Nanoseconds exceeds_max_wait() const noexcept;

 private:
  struct Instance {
    Range range;
    bool any_thread;
    bool dispatched = false;    // its worker was woken and has not asked yet
    bool normal = false;        // its batch has normal requests
    std::size_t requests = 0;   // of the batch that it runs; 0: it was not queued
    Nanoseconds queued_at = 0;  // the mean moment at which they arrived
    Nanoseconds free_since = 0;
    Nanoseconds ends = 0;   // when its batch ends, by the learned times; 0: not known
    Nanoseconds began = 0;  // when it took its batch from the queue; 0: it did not
    std::size_t items = 0;  // of its batch, and the cost of the largest
    double cost = 1;
  };
  using Cut = RequestQueue::Cut;
  using Takes = RequestQueue::Takes;
  using Alternative = PolicyTrial::Alternative;

  bool is_full(std::size_t requests) const noexcept { return requests >= config_.capacity + dispatched_; }
  std::size_t busy() const noexcept { return instances_.size() - idle_.size(); }
  void release(Instance& instance) noexcept;
  bool takes(Index instance, const Request& request) const noexcept {
    return request.items <= instances_[instance].range.max;
  }
  std::size_t max_items(Index instance) const noexcept;
  std::size_t min_items(Index instance) const noexcept;
  Cut cut(std::size_t max_items, Takes which, RequestQueue::Start start = {}) const noexcept {
    return queue_.cut(max_items, config_.batching.mode == BatchingMode::kPerCall, which, start);
  }
  bool can_run(Index instance, Takes which) const noexcept;
  std::optional<Takes> next_lanes(Index instance) const noexcept;
  std::size_t free_for_normal(std::size_t instances, std::size_t running) const noexcept;
  std::size_t free_for_normal() const noexcept { return free_for_normal(instances_in_use(), normal_running_); }
  std::size_t instances_with(std::optional<Alternative> alternative) const noexcept;
  void note_instances() noexcept;
  // Whether what the forming batch waits for is there.
  bool is_complete() const noexcept;
  // Whether a batch starts at once, because a request of a higher class waits for it.
  bool is_urgent(Index instance) const noexcept { return queue_.has_high() && queue_.items() >= min_items(instance); }

  // Which batches teach something, and what was learned.
  bool is_adaptive() const noexcept { return config_.batching.mode == BatchingMode::kAdaptive; }
  bool learns_times() const noexcept {
    return (is_adaptive() && config_.batching.max > 1) || config_.max_wait > 0 || config_.by_deadline;
  }
  bool learns_returns() const noexcept {
    return config_.batching.max > 1 &&
           (is_adaptive() || (config_.batching.mode == BatchingMode::kGreedy && config_.batching.batching_timeout > 0));
  }
  std::size_t cap_of(Index instance, Takes which, Nanoseconds moment) const noexcept;
  TargetSize current_target(std::size_t cap) const noexcept { return times_.target_batch_size(smallest_, cap); }
  std::size_t items_per_instance(std::size_t items, std::size_t workers, std::size_t max_items) const noexcept;
  std::pair<std::size_t, bool> next_batch_size(Index instance, Takes which, Nanoseconds moment) noexcept;
  Hold returns_worth_waiting(Index instance, Nanoseconds moment, const Cut& batch, std::size_t max_items) noexcept;
  Nanoseconds filled_until(const Cut& batch, bool enough) const noexcept;

  // deadlines.cpp: the deadlines of the requests.
  double least_time(std::size_t items, Nanoseconds moment) const noexcept;
  double to_usual(std::size_t items, double cost) const noexcept { return costs_ ? costs_->to_usual(items, cost) : 1; }
  bool fail_if_over(Request& request, double least, const LearnedTime& after, Nanoseconds moment) const noexcept;
  Cut in_time(const Cut& batch, Takes which, std::size_t most, std::size_t min_items, Nanoseconds moment) noexcept;
  bool all_end_in_time(const Cut& batch, Takes which, const Cut& first, TimeAfter& time_after,
                       Nanoseconds moment) const noexcept;
  std::optional<Cut> best_in_time(Takes which, std::size_t most, std::size_t min_items, TimeAfter& time_after,
                                  Nanoseconds moment, double TimeRange::* part) noexcept;
  Nanoseconds latest_start(const Cut& batch, Nanoseconds moment) const noexcept;

  void note_arrival(LaneName lane, Nanoseconds moment) noexcept;
  void start(Instance& instance, bool normal, std::size_t requests, Nanoseconds queued_at) noexcept;

  // What the rules see: the instance that asks, and the batch that it could run.
  struct View {
    Index index;
    Instance& instance;
    Nanoseconds moment;
    std::optional<Forming> waited;  // the wait that ended, if it waited
    bool missed;                    // that wait ended without what it waited for
    bool at_once;                   // no further request will come
    std::size_t cap, floor;         // the largest and the smallest batch of the instance
    RequestChain &taken, &removed;
    // The batch; choose_batch() sets these.
    Takes which = Takes::kAll;
    std::size_t target_size = 0;
    bool samples = false;  // the target size is a sample
    Cut batch = {};
    const CostModel::Choice* by_cost = nullptr;  // how requests of unequal cost are divided
    bool enough = false;                         // the batch has its minimum size
    bool starts = false;                         // it must not wait for others
    bool may_grow = false;                       // below the target size, and others may join it
  };
  using Answer = std::optional<Action>;
  Answer enough_instances_run(View& view) noexcept;
  Answer remove_late_requests(View& view) noexcept;
  Answer wait_for_first_return(View& view) noexcept;
  Answer nothing_to_run(View& view) noexcept;
  Answer remove_late_of_batch(View& view) noexcept;
  Answer leave_to_forming(View& view) noexcept;
  Answer wait_to_fill(View& view) noexcept;
  Answer wait_for_returns(View& view) noexcept;
  Answer fail_below_minimum(View& view) noexcept;
  Answer leave_slot_to_forming(View& view) noexcept;
  Answer wait_for_slot(View& view) noexcept;
  Answer run_share(View& view) noexcept;
  Answer run_batch(View& view) noexcept;

  void choose_batch(View& view, Takes which) noexcept;
  void choose_by_cost(View& view) noexcept;
  bool needs_slot(const View& view) const noexcept;
  void find_free(const View& view) noexcept;
  Action hold(const Forming& forming) noexcept;
  void take(View& view) noexcept;

 public:
  struct Rule {
    const char* name;
    Answer (NodeScheduler::*answer)(View&) noexcept;
  };
  // The policy: what next_action() returns is the first answer of these.
  static constexpr Rule kRules[] = {
      {"kIdle: enough other instances run", &NodeScheduler::enough_instances_run},
      {"kAgain: requests expired, were abandoned or cannot end in time", &NodeScheduler::remove_late_requests},
      {"kWait: none is queued, and callers return soon", &NodeScheduler::wait_for_first_return},
      {"kIdle: none is queued that the instance can run", &NodeScheduler::nothing_to_run},
      {"kAgain: requests of the batch expired", &NodeScheduler::remove_late_of_batch},
      {"kIdle: another instance is forming a batch of these", &NodeScheduler::leave_to_forming},
      {"kWait: batching_timeout is not over", &NodeScheduler::wait_to_fill},
      {"kWait: returning callers save more than they cost", &NodeScheduler::wait_for_returns},
      {"kAgain: the batch is below its minimum size", &NodeScheduler::fail_below_minimum},
      {"kIdle: another instance has the next start slot", &NodeScheduler::leave_slot_to_forming},
      {"kWait: another instance of the device just started", &NodeScheduler::wait_for_slot},
      {"kRun: a share of the batch ends sooner, and others take the rest", &NodeScheduler::run_share},
      {"kRun", &NodeScheduler::run_batch},
  };

 private:
  std::string node_;
  NodeConfig config_;
  std::vector<Instance> instances_;
  bool alike_ = true;  // all instances have the same range
  RequestQueue queue_;
  std::vector<Index> idle_;         // never allocates: it begins with all instances
  std::vector<double> free_in_;     // nanoseconds until others are free, for run_share(); never allocates either
  std::size_t dispatched_ = 0;      // number of dispatched instances
  std::size_t normal_running_ = 0;  // number of instances that run batches with normal requests
  Nanoseconds high_until_ = 0;      // until then, high traffic is present
  std::vector<const Request*> arriving_;
  std::size_t unreachable_ = 0;  // requests that could not end in time
  bool stopping_ = false;

  std::optional<Forming> forming_;

  ServiceTimeModel times_;  // with costs_, of items of a usual cost
  std::unique_ptr<CostModel> costs_;
  ReturnTimes returns_;
  PolicyTrial trial_;
  bool holds_ = false;            // batches are held for returning callers
  std::size_t limit_ = 0;         // with auto_instances: how many instances run at a time
  Nanoseconds worked_until_ = 0;  // when the last batch ended, or the node had work again
  Nanoseconds last_start_ = 0;    // of a batch of any instance
  double took_ = 0;               // recent mean time of a batch
  double items_each_ = 0;         // recent mean items of a request
  std::size_t smallest_ = 1;      // smallest possible batch of the current queue
  std::uint32_t random_ = 1;      // xorshift: never 0
  std::uint64_t batches_ = 0;
  std::uint64_t last_sample_ = 0;  // the batch count at which another size was sampled
  bool samples_less_ = false;      // the next sample is smaller than the target, not larger
};

}  // namespace hami
