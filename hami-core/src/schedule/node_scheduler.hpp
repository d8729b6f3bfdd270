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
enum class Gather {
  kCalls,  // what one call brought
  kMost,   // whatever waits, as much as fits
  kLearn,  // as much as was seen to pay
};

struct FillPolicy {
  Gather gather = Gather::kCalls;
  std::size_t max = 1;       // items run together at most
  std::size_t min = 1;
  Nanoseconds company = 0;   // how long the oldest may wait for it
};

class NodeScheduler {
 public:
  using Requests = std::vector<Ref<Request>>;
  using Index = std::size_t;  // of an instance

  explicit NodeScheduler(std::string node) : node_(std::move(node)) {}

  // Before the first request. An instance's range is what its forward takes; `any_thread`: a caller's too.
  void add_instance(const Range& range, bool any_thread);
  void set_policy(const FillPolicy& policy) {
    policy_ = policy;
    waits_ = TwoWays(policy.gather == Gather::kMost && policy.company > 0);
  }
  void set_room(std::size_t requests) { room_ = requests; }

  // What waits, in the order of its arrival.
  std::size_t waiting() const noexcept { return queue_.size(); }
  // A summoned instance is about to take one: that one has a place already.
  bool full() const noexcept { return queue_.size() >= room_ && queue_.size() - room_ >= summoned_; }
  const Request* first() const noexcept { return queue_.empty() ? nullptr : queue_.front().request.get(); }
  // `call` is the same for what came together.
  void push(Ref<Request> request, Nanoseconds moment, std::uint64_t call);
  // For requests that backends wait for: until it is pushed or refused, such a one counts as the last that waits. False: an
  // instance is there for it.
  bool begin_arrival(const Request& request);
  void end_arrival(const Request& request) noexcept;
  // Adds what needs, until `moment` at least, a request that is not run while the `lost` instances are away.
  void add_stuck(const std::vector<Index>& lost, Nanoseconds moment, std::vector<const Ask*>& stuck) const;
  // Takes out what nobody waits for any more; it has failed.
  void drop_dead(Nanoseconds moment, Requests& dropped);
  Requests take_all();
  // From now on nobody waits for company.
  void stop() noexcept { stopping_ = true; }
  bool stopping() const noexcept { return stopping_; }

  // Instances that have nothing to do.
  const std::vector<Index>& idle() const noexcept { return idle_; }
  bool all_idle() const noexcept { return idle_.size() == instances_.size(); }
  void rest(Index instance) {
    has_come(instance);
    idle_.push_back(instance);
  }
  // An idle instance for a caller's own thread; it is idle no more. Empty: these items must queue.
  std::optional<Index> claim(std::size_t items);
  // The idle instance that suits best what waits; it is idle no more. Empty: there is none, or one gathers already.
  std::optional<Index> summon();
  // How many idle instances should work on `items` that just came.
  std::size_t hands_for(std::size_t items) const;

  struct Step {
    enum What { kRun, kWait, kAgain, kRest } what;
    Nanoseconds until = 0;
  };
  // What an instance that is free does next, after it has run a batch of `released` items (0: it comes from rest).
  // kRun: `taken` is its batch. kWait: it asks again at `until`, or as soon as it `has_company`. kAgain: it asks again
  // when `dropped` was given back. kRest: it is idle now.
  Step collect(Index instance, Nanoseconds moment, std::size_t released, Requests& taken, Requests& dropped);
  // The instance that waits for company, if any; and whether enough has come for it.
  std::optional<Index> gathering() const noexcept { return gathering_; }
  bool has_company() const noexcept { return gathering_ && (items_ >= enough_ || full() || stopping_); }
  // An instance has run a batch; what that took is learned from.
  void ran(Index instance, std::size_t items, Nanoseconds took) noexcept;

  // What a batch costs; empty: not known, or not asked for. And how many items are then taken of many that wait.
  std::optional<Cost> cost() const noexcept;
  std::size_t aim() const noexcept;
  // Why batches were closed.
  struct Closed {
    std::uint64_t full = 0;      // there was no room for more
    std::uint64_t chosen = 0;    // more would not have paid
    std::uint64_t patience = 0;  // no more company came in time
    std::uint64_t drained = 0;   // nothing more waited
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
    bool summoned = false;     // and has not come yet
    bool shares = false;       // another one worked when its batch began
    std::size_t requests = 0;  // of its last batch; 0 once its callers are expected back
    Nanoseconds free_since = 0;
    Nanoseconds ended = 0;     // when its last batch did
  };
  struct Fill {
    std::size_t count = 0;
    std::size_t items = 0;
  };

  void has_come(Index instance) noexcept { summoned_ -= std::exchange(instances_[instance].summoned, false); }
  bool takes(Index instance, const Request& request) const noexcept { return request.items <= most(instance); }
  bool drop_if_dead(std::size_t index, Nanoseconds moment, Requests& dropped);
  std::size_t most(Index instance) const noexcept;
  std::size_t least(Index instance) const noexcept;
  Fill fill(std::size_t most) const noexcept;
  bool suits(Index instance) const noexcept;
  bool others_work() const noexcept { return instances_.size() - idle_.size() > 1; }
  std::size_t share(std::size_t items, std::size_t hands, std::size_t most) const noexcept;
  std::size_t items_of_first_call() const noexcept;
  Aim aim_now(std::size_t cap) const noexcept;
  std::size_t choose(Index instance) noexcept;
  Nanoseconds stays(Index instance, std::size_t released) noexcept;
  void came_back() noexcept;
  void expect_back(Index instance, Nanoseconds moment, std::size_t released) noexcept;
  bool takes_turns(const Fill& batch, std::size_t cap) const noexcept;
  Nanoseconds turn(Index instance, Nanoseconds moment) noexcept;
  Step wait(Index instance, std::size_t enough, Nanoseconds until) noexcept;
  Step take(Index instance, const Fill& batch, Requests& taken);
  Step refuse(const Fill& batch, std::size_t least, Requests& dropped);

  std::string node_;
  FillPolicy policy_;
  std::size_t room_ = SIZE_MAX;
  std::vector<Instance> instances_;
  bool alike_ = true;  // all instances take the same
  std::deque<Task> queue_;
  std::size_t items_ = 0;  // in the queue
  std::vector<Index> idle_;
  std::size_t summoned_ = 0;  // so many instances were, and have not come yet
  std::vector<const Request*> arriving_;
  bool asked_inside_ = false;  // something that a backend waits for has arrived, ever
  bool stopping_ = false;
  std::optional<Index> gathering_;
  std::size_t enough_ = 0;  // items for which the gathering instance need not wait any longer
  Closed closed_;

  CostModel alone_, shared_;  // while no other instance worked, and while one did
  TwoWays waits_;             // to begin at once, or to wait for one's turn; first that, where it is known that there is time
  std::uint64_t batches_ = 0;
  std::uint64_t try_again_ = 8;  // another size than the best, when so many were run
  bool tries_more_ = false;
  std::size_t smallest_ = 1;  // batch that can be made of what waited last
  Nanoseconds last_took_ = 0;
  Nanoseconds last_ended_ = 0;     // when the last batch of any instance did
  Nanoseconds last_began_ = 0;     // and when the last one began
  Nanoseconds period_ = 0;         // from one batch of an instance to its next, the mean of late; of those that begin apart
  Nanoseconds company_until_ = 0;  // till then those who were released together are expected back
  std::size_t due_ = 0;            // their items that have not come yet
  bool staying_ = false;          // the gathering instance waits for callers that it has just released
  unsigned missed_ = 0;           // how often in a row they did not come
  std::uint64_t stay_again_ = 0;  // not before so many batches
};

}  // namespace hami
