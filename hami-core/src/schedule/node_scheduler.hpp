// What waits for a node and which instance takes how much of it, when. No threads, no locks, no clock: the dispatcher has
// them, and a test can play any course of events.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "request/wait_graph.hpp"
#include "schedule/service_time_model.hpp"
#include "schedule/policy_trial.hpp"

namespace hami {

// Who is run together.
enum class BatchingMode {
  kPerCall,   // the requests of one call
  kGreedy,    // all that is queued, up to max
  kAdaptive,  // up to the target batch size, which is learned
};

struct BatchingConfig {
  BatchingMode mode = BatchingMode::kPerCall;
  std::size_t max = 1;       // items run together at most
  std::size_t min = 1;
  Nanoseconds batching_timeout = 0;  // maximum queue delay of a request that is held for others
};

class NodeScheduler {
 public:
  using Requests = std::vector<Ref<Request>>;
  using Index = std::size_t;  // of an instance

  explicit NodeScheduler(std::string node) : node_(std::move(node)) {}

  // Before the first request. An instance's range is what its forward takes; `any_thread`: a caller's too.
  void add_instance(const Range& range, bool any_thread);
  void set_policy(const BatchingConfig& policy) {
    policy_ = policy;
    pacing_trial_ = PolicyTrial(policy.mode == BatchingMode::kGreedy && policy.batching_timeout > 0);
  }
  void set_capacity(std::size_t requests) { capacity_ = requests; }

  // What waits, in the order of its arrival.
  std::size_t waiting() const noexcept { return queue_.size(); }
  // A summoned instance is about to take one: that one has a place already.
  bool full() const noexcept { return queue_.size() >= capacity_ && queue_.size() - capacity_ >= dispatched_; }
  const Request* first() const noexcept { return queue_.empty() ? nullptr : queue_.front().request.get(); }
  // `call` is the same for what came together.
  void push(Ref<Request> request, Nanoseconds moment, std::uint64_t call);
  // For requests that backends wait for: until it is pushed or refused, such a one counts as the last that waits. False: an
  // instance is there for it.
  bool begin_arrival(const Request& request);
  void end_arrival(const Request& request) noexcept;
  // Adds what needs, until `moment` at least, a request that is not run while the `lost` instances are away.
  void add_blocked(const std::vector<Index>& unavailable, Nanoseconds moment, std::vector<const WaitToken*>& blocked) const;
  // Takes out what nobody waits for any more; it has failed.
  void remove_expired(Nanoseconds moment, Requests& removed);
  Requests take_all();
  // From now on nobody waits for company.
  void stop() noexcept { stopping_ = true; }
  bool stopping() const noexcept { return stopping_; }

  // Instances that have nothing to do.
  const std::vector<Index>& idle() const noexcept { return idle_; }
  bool all_idle() const noexcept { return idle_.size() == instances_.size(); }
  void mark_idle(Index instance) {
    mark_arrived(instance);
    idle_.push_back(instance);
  }
  // An idle instance for a caller's own thread; it is idle no more. Empty: these items must queue.
  std::optional<Index> acquire_inline(std::size_t items);
  // The idle instance that suits best what waits; it is idle no more. Empty: there is none, or one gathers already.
  std::optional<Index> dispatch_idle();
  // How many idle instances should work on `items` that just came.
  std::size_t instances_for(std::size_t items) const;

  struct Action {
    enum What { kRun, kWait, kAgain, kIdle } what;
    Nanoseconds until = 0;
  };
  // What an instance that is free does next, after it has run a batch of `released` items (0: it comes from rest).
  // kRun: `taken` is its batch. kWait: it asks again at `until`, or as soon as it `batch_ready`. kAgain: it asks again
  // when `dropped` was given back. kRest: it is idle now.
  Action next_action(Index instance, Nanoseconds moment, std::size_t completed_items, Requests& taken, Requests& removed);
  // The instance that waits for company, if any; and whether enough has come for it.
  std::optional<Index> forming() const noexcept { return forming_; }
  bool batch_ready() const noexcept { return forming_ && (items_ >= ready_items_ || full() || stopping_); }
  // An instance has run a batch; what that took is learned from.
  void record_batch(Index instance, std::size_t items, Nanoseconds took) noexcept;

  // What a batch costs; empty: not known, or not asked for. And how many items are then taken of many that wait.
  std::optional<ServiceTime> service_time() const noexcept;
  std::size_t target_batch_size() const noexcept;
  // Why batches were closed.
  struct Closed {
    std::uint64_t full = 0;      // there was no room for more
    std::uint64_t target_size = 0;    // more would not have paid
    std::uint64_t timeout = 0;  // no more company came in time
    std::uint64_t queue_empty = 0;   // nothing more waited
  };
  const Closed& closed() const noexcept { return closed_; }

 private:
  struct Task {
    Ref<Request> request;
    Nanoseconds arrived;
    std::uint64_t call;
  };
  struct Instance {
    Range range;
    bool any_thread;
    bool dispatched = false;     // and has not come yet
    bool contended = false;       // another one worked when its batch began
    std::size_t requests = 0;  // of its last batch; 0 once its callers are expected back
    Nanoseconds free_since = 0;
    Nanoseconds ended = 0;     // when its last batch did
  };
  struct Fill {
    std::size_t count = 0;
    std::size_t items = 0;
  };

  void mark_arrived(Index instance) noexcept { dispatched_ -= std::exchange(instances_[instance].dispatched, false); }
  bool takes(Index instance, const Request& request) const noexcept { return request.items <= max_items(instance); }
  bool remove_if_expired(std::size_t index, Nanoseconds moment, Requests& removed);
  std::size_t max_items(Index instance) const noexcept;
  std::size_t min_items(Index instance) const noexcept;
  Fill fill(std::size_t max_items) const noexcept;
  bool suits(Index instance) const noexcept;
  bool others_work() const noexcept { return instances_.size() - idle_.size() > 1; }
  std::size_t items_per_instance(std::size_t items, std::size_t hands, std::size_t max_items) const noexcept;
  std::size_t items_of_first_call() const noexcept;
  TargetSize current_target(std::size_t cap) const noexcept;
  std::size_t next_batch_size(Index instance) noexcept;
  Nanoseconds return_wait(Index instance, std::size_t completed_items) noexcept;
  void end_hold() noexcept;
  void expect_returns(Index instance, Nanoseconds moment, std::size_t completed_items) noexcept;
  bool is_paced(const Fill& batch, std::size_t cap) const noexcept;
  Nanoseconds paced_start(Index instance, Nanoseconds moment) noexcept;
  Action wait(Index instance, std::size_t enough, Nanoseconds until) noexcept;
  Action take(Index instance, const Fill& batch, Requests& taken);
  Action refuse(const Fill& batch, std::size_t min_items, Requests& removed);

  std::string node_;
  BatchingConfig policy_;
  std::size_t capacity_ = SIZE_MAX;
  std::vector<Instance> instances_;
  bool alike_ = true;  // all instances take the same
  std::deque<Task> queue_;
  std::size_t items_ = 0;  // in the queue
  std::vector<Index> idle_;
  std::size_t dispatched_ = 0;  // so many instances were, and have not come yet
  std::vector<const Request*> arriving_;
  bool asked_inside_ = false;  // something that a backend waits for has arrived, ever
  bool stopping_ = false;
  std::optional<Index> forming_;
  std::size_t ready_items_ = 0;  // items for which the gathering instance need not wait any longer
  Closed closed_;

  ServiceTimeModel solo_, contended_;  // while no other instance worked, and while one did
  PolicyTrial pacing_trial_;             // to begin at once, or to wait for one's turn; first that, where it is known that there is time
  std::uint64_t batches_ = 0;
  std::uint64_t try_again_ = 8;  // another size than the best, when so many were run
  bool tries_more_ = false;
  std::size_t smallest_ = 1;  // batch that can be made of what waited last
  Nanoseconds last_took_ = 0;
  Nanoseconds last_ended_ = 0;     // when the last batch of any instance did
  Nanoseconds last_began_ = 0;     // and when the last one began
  Nanoseconds period_ = 0;         // from one batch of an instance to its next, the mean of late; of those that begin apart
  Nanoseconds returns_until_ = 0;  // till then those who were released together are expected back
  std::size_t pending_returns_ = 0;            // their items that have not come yet
  bool holding_for_returns_ = false;          // the gathering instance waits for callers that it has just released
  unsigned missed_returns_ = 0;           // how often in a row they did not come
  std::uint64_t hold_again_at_batch_ = 0;  // not before so many batches
};

}  // namespace hami
