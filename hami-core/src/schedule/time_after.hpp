// How long requests take after a node, in the rest of their graph, by the learned times of its nodes. The deadline of a request leaves a
// node so much less time.
#pragma once

#include <vector>

#include "request/api.hpp"
#include "schedule/graph.hpp"

namespace hami {

// GraphTimes: the time after each node of a graph: that of the slowest way to an end. It is a lower bound: a request also waits.
class GraphTimes {
 public:
  // `times`: of each node; null: a request may pass it without a run, or nothing is known about it. The graph outlives this.
  GraphTimes(const Graph& graph, std::vector<const SharedTime*> times);

  // A node has skipped a request: those that it will skip may miss all nodes after it, on other ways too.
  void note_skip(std::size_t node) noexcept;
  LearnedTime after(std::size_t node, Nanoseconds moment) const noexcept;

 private:
  const Graph& graph_;
  const std::vector<const SharedTime*> times_;
  std::vector<std::size_t> backwards_;  // all nodes, each behind those after it
  mutable Mutex mutex_;
  std::vector<bool> missed_ HAMI_GUARDED_BY(mutex_);  // nodes after one that has skipped a request
  mutable Nanoseconds computed_at_ HAMI_GUARDED_BY(mutex_) = -1;
  mutable std::vector<LearnedTime> after_ HAMI_GUARDED_BY(mutex_);
};

// TimeAfter: the time after this node of one request after another. Caches the last one: most requests of a queue are on the same way.
class TimeAfter {
 public:
  explicit TimeAfter(Nanoseconds moment) noexcept : moment_(moment) {}
  const LearnedTime& operator()(const Request& request) noexcept {
    if (request.sink.get() == sink_ && request.index == index_) return time_;
    sink_ = request.sink.get();
    index_ = request.index;
    time_ = sink_ ? sink_->time_after(request, moment_) : LearnedTime{};
    return time_;
  }
  // The time until its deadline, without that time.
  double left(const Request& request, double TimeRange::* part) noexcept {
    return static_cast<double>(request.deadline - moment_) - (*this)(request).range.*part;
  }

 private:
  const Nanoseconds moment_;
  const CompletionSink* sink_ = nullptr;
  std::size_t index_ = 0;
  LearnedTime time_;
};

}  // namespace hami
