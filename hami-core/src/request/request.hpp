// Request and Batch: a request on its way through a pipe, and the requests of one call of forward.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "observe/api.hpp"
#include "request/node_visits.hpp"
#include "sync/api.hpp"

namespace hami {

inline constexpr std::uint64_t kLastRound = UINT64_MAX;  // of a request that is in no queue

// LaneLinks: the links of a request that waits in a Lane (schedule/request_queue.hpp), which therefore never allocates.
class Request;

struct LaneLinks {
  Request* before = nullptr;  // in the order of the lane
  Request* after = nullptr;
  Request* older = nullptr;  // in the order of arrival
  Request* younger = nullptr;
  Request* parent = nullptr;  // in the search tree
  Request* left = nullptr;
  Request* right = nullptr;
  std::uint32_t weight = 0;  // in the search tree; 0: it is not in the tree
};

// Request and Batch: a request on its way through a pipe, and the requests of one call of forward.
class Request;
class RequestChain;

// CompletionSink: receives completed requests. Called once for each request, on the thread that completes it, without any
// lock held.
class CompletionSink : public Counted {
 public:
  // Returns the parker of the thread that waits for them if the caller must wake it, else null.
  virtual Parker* complete(Request* const* requests, std::size_t count) noexcept = 0;
  // True if `complete` only wakes a thread and does no other work.
  virtual bool only_wakes() const noexcept { return false; }
  // How long the request takes after its completion here at least, by the learned times of the nodes that it passes then. It
  // depends on the request's `index` alone.
  virtual LearnedTime time_after(const Request& /*request*/, Nanoseconds /*moment*/) const noexcept { return {}; }
  // True if `complete` calls into the language of the request's caller.
  virtual bool calls_back() const noexcept { return false; }
};

// One owner at a time: passing a request on transfers the right to use `dict` and `error`.
class Request : public Counted {
 public:
  Dict dict;
  std::optional<Error> error;  // set: the request has failed, and no backend runs it any more
  Ref<CompletionSink> sink;
  Ref<Request> parent;               // the request that this one is a part or a branch of
  Ref<Counted> wait_token;           // the WaitToken of a wait inside a backend (wait_graph.hpp)
  Ref<Counted> owner;                // for the sink
  Ref<NodeVisits> visits;            // of the request of a call; null: they are not kept
  std::size_t index = 0;             // for the sink
  std::size_t items = 1;             // request_size
  double cost = 1;                   // of each item, for the queue of a node with `request_cost`
  std::size_t bytes = 0;             // for the queue of a node with a memory_limit: the size of `dict`
  Nanoseconds deadline = kNever;     // not negative
  Nanoseconds queued_at = 0;         // for the node that runs it: when it was queued; 0: it was not
  std::uint64_t call = 0;            // for the queue: requests of one call have the same number
  std::uint64_t round = kLastRound;  // for the queue: lower ones first
  std::uint64_t trace_id = 0;        // in the timeline (observe/trace.hpp); 0: none
  std::uint8_t priority = 0;
  Ref<Queue> parts;  // where `emit` of this request and of its branches puts values; null: the caller takes no parts
  bool isolates = true;  // its node wants it to run again alone if its batch fails as a whole
  std::vector<Ref<Request>>
      merged_from;  // the requests that this one merges, each with a caller of its own; empty: none

  bool alive() const noexcept { return !error; }
  void fail(Error reason) {
    if (!error) error.emplace(std::move(reason));
  }
  // Its caller has given it up: any further work is wasted.
  bool abandoned() const noexcept {
    for (const Request* request = this; request; request = request->parent.get())
      if (request->abandoned_.load(std::memory_order_relaxed)) return true;
    return false;
  }
  // Abandoned, or past its deadline: for backends that can stop early.
  bool cancelled() const noexcept;
  // Fails a cancelled request, also if a backend has left a result in it: with kDeadlineExceeded or kCancelled.
  void fail_if_cancelled() noexcept;
  // The error of a cancelled request: kDeadlineExceeded or kCancelled.
  Error cancellation() const noexcept;
  // Delivers a part of the result to the caller, and waits while the caller is behind. False: the caller takes no parts, and this one is
  // dropped. After that the request does not run again. Error if its deadline passes, or the caller has left: then it is abandoned.
  bool emit(Value part);
  bool has_listener() const noexcept { return bool(root().parts); }
  bool has_emitted() const noexcept { return parts_emitted() > 0; }
  std::uint32_t parts_emitted() const noexcept { return root().emitted_.load(std::memory_order_relaxed); }
  // Ends the parts: the caller's loop ends, and `emit` fails.
  void end_parts() noexcept {
    if (parts) parts->close();
  }
  void abandon() const noexcept { abandoned_.store(true, std::memory_order_relaxed); }

  // The numbers in the timeline of the requests that callers made and this one works for.
  template <class Use>
  void for_each_trace_id(const Use& use) const {
    for (const Ref<Request>& merged : merged_from) merged->for_each_trace_id(use);
    if (!merged_from.empty()) return;
    if (parent) return parent->for_each_trace_id(use);
    if (trace_id) use(trace_id);
  }

  // A new request with the same keys, whose parent is this one.
  Ref<Request> branch(Ref<CompletionSink> branch_sink, std::size_t branch_index);

 private:
  friend class Lane;
  friend class RequestChain;

  const Request& root() const noexcept { return parent ? parent->root() : *this; }

  Request* next_ = nullptr;  // in the chain that owns this request
  LaneLinks links_;          // in the lane that owns this request
  mutable std::atomic<bool> abandoned_{false};
  mutable std::atomic<std::uint32_t> emitted_{0};  // parts
};

// The requests of one call of forward, borrowed. Copying it copies two words.
class Batch {
 public:
  Batch(Request* const* requests, std::size_t count) noexcept : requests_(requests), count_(count) {}
  explicit Batch(const std::vector<Request*>& requests) noexcept : Batch(requests.data(), requests.size()) {}

  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  Request& operator[](std::size_t index) const noexcept { return *requests_[index]; }
  Request* const* begin() const noexcept { return requests_; }
  Request* const* end() const noexcept { return requests_ + count_; }
  Batch part(std::size_t first, std::size_t count) const noexcept { return {requests_ + first, count}; }
  std::size_t items() const noexcept;
  std::size_t parts_emitted() const noexcept;

 private:
  Request* const* requests_;
  std::size_t count_;
};

// Between two steps: `result` becomes `data`. Without a `result` the request fails (NoResult, which names `step`); returns
// false.
bool result_to_data(Request& request, const std::string& step);

// The `request_size` of a request, default 1. Error(kRequest) if it is not a positive int.
std::size_t declared_items(const Dict& dict);
// The cost of an item. Error(kRequest), which begins with `what`, if `given` is not a positive number. Costs beyond kLeastCost and
// kMostCost count as these, so that their squares, as times, are finite.
double checked_cost(const Value& given, const std::string& what);
inline constexpr double kLeastCost = 1e-6, kMostCost = 1e12;

// Sets the cost of the items of each request, or fails the request; on any thread.
using CostFunction = std::function<void(Batch)>;
// The cost is the value of a key of the request.
CostFunction cost_by_key(std::string key);
// The `priority` of a request; empty if it has none. Error if it is not an int from 0 to 255.
std::optional<std::uint8_t> declared_priority(const Dict& dict);

// True if `complete_requests` will only wake threads.
bool only_wakes(Batch batch) noexcept;
// Passes each request to its sink; neighbours with the same sink together.
void complete_requests(Batch batch) noexcept;

}  // namespace hami
