// BatchRunner: runs one batch on one instance: hooks, retries, statistics. Afterwards each request has its own outcome.
#pragma once

#include <string>
#include <utility>

#include "backend/api.hpp"
#include "observe/api.hpp"
#include "request/api.hpp"

namespace hami {

class BatchRunner {
 public:
  // Why a batch starts, for the timeline.
  enum class StartReason { kFull, kTargetSize, kTimeout, kQueueEmpty, kInline };

  BatchRunner(const std::string& node, NodeStats& stats, NodeTimes& times)
      : node_(node), note_("node \"" + node + "\""), trace_name_(trace::intern(node)), stats_(stats), times_(times) {}

  // The brackets of the dispatcher: a hook for each request before it is queued, and one for each batch.
  void set_hooks(Init& init);
  // Whether the requests of a batch that failed as a whole run again, each alone.
  void set_isolate(bool isolate) noexcept { isolate_ = isolate; }
  // What the items of a request cost; null: all cost the same.
  void set_cost(CostFunction cost) noexcept { cost_ = std::move(cost); }
  bool has_costs() const noexcept { return cost_ != nullptr; }

  const std::string& note() const noexcept { return note_; }  // of errors of this node
  // Whether `admit` takes microseconds and never blocks.
  bool admits_without_blocking() const noexcept {
    return !before_gathering_ || before_gathering_->traits().non_blocking;
  }
  // Notes that requests with a deadline are at this node, until they have run or are rejected.
  void record_arrival(Batch batch) noexcept;
  // Checks a request before it is queued. False: it has failed, with a note that names the node.
  // `remarks` may say why the node takes few items; null: the configuration says so.
  bool admit(Request& request, std::size_t max_items, const Remarks* remarks = nullptr) noexcept;
  // Sets the cost of admitted requests. Those that it fails have a note that names the node.
  void set_costs(Batch batch) noexcept;
  // Returns the time that it took. Never throws: an exception of the backend becomes the outcome.
  Nanoseconds run(Backend& instance, Batch batch, StartReason reason) noexcept;
  // Adds `by` to a statistic for each request, also in those of its lane.
  void count(Batch batch, RequestStats::Counter RequestStats::* statistic, std::uint64_t by = 1) noexcept;
  // Counts and completes requests that failed before they ran.
  void complete_rejected(Batch batch) noexcept;
  void complete_rejected(RequestChain& requests) noexcept;
  // The same for requests that cannot end in time: they count as rejected, not as expired.
  void complete_unreachable(RequestChain& requests) noexcept;

 private:
  void forward(Backend& instance, Batch batch);
  void record_end(Batch batch, bool ran) noexcept;
  void record_times(Batch batch, Nanoseconds start, Nanoseconds took) noexcept;
  void count_outcomes(Batch batch) noexcept;
  void trace_start(Batch batch, Nanoseconds start, StartReason reason, trace::Slice& slice) noexcept;
  void trace_at_node(Batch batch, trace::Name name) noexcept;
  void trace_rejected(Batch batch) noexcept;

  const std::string node_;
  const std::string note_;
  const trace::Name trace_name_;
  NodeStats& stats_;
  NodeTimes& times_;
  bool isolate_ = true;
  CostFunction cost_;
  BackendPtr before_gathering_;  // PreCat
  BackendPtr before_instance_;   // CatedHandle
};

}  // namespace hami
