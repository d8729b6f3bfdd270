// GraphTimes: the slowest way from each node to an end of the graph.
#include "schedule/time_after.hpp"

#include <algorithm>
#include <utility>

namespace hami {

GraphTimes::GraphTimes(const Graph& graph, std::vector<const SharedTime*> times)
    : graph_(graph), times_(std::move(times)), missed_(times_.size()), after_(times_.size()) {
  std::vector<std::size_t> open(times_.size());  // nodes after it that are not in the list yet
  for (std::size_t node = 0; node < open.size(); ++node) {
    open[node] = graph.nodes()[node].next.size();
    if (open[node] == 0) backwards_.push_back(node);
  }
  for (std::size_t i = 0; i < backwards_.size(); ++i)
    for (const std::size_t before : graph.nodes()[backwards_[i]].before)
      if (--open[before] == 0) backwards_.push_back(before);
}

void GraphTimes::note_skip(std::size_t node) noexcept {
  MutexLock lock(mutex_);
  const auto miss_those_after = [&](std::size_t here) {
    mutex_.assert_held();
    bool any_new = false;
    for (const std::size_t next : graph_.nodes()[here].next) {
      any_new = any_new || !missed_[next];
      missed_[next] = true;
    }
    return any_new;
  };
  if (!miss_those_after(node)) return;
  for (auto here = backwards_.rbegin(); here != backwards_.rend(); ++here)
    if (missed_[*here]) miss_those_after(*here);
  computed_at_ = -1;
}

LearnedTime GraphTimes::after(std::size_t node, Nanoseconds moment) const noexcept {
  MutexLock lock(mutex_);
  if (std::exchange(computed_at_, moment) == moment) return after_[node];
  for (const std::size_t here : backwards_) {
    LearnedTime& longest = after_[here] = {};
    for (const std::size_t next : graph_.nodes()[here].next) {
      const LearnedTime own = times_[next] && !missed_[next] ? times_[next]->at(moment) : LearnedTime{};
      longest.certain = std::max(longest.certain, own.certain + after_[next].certain);
      for (double TimeRange::* const part : {&TimeRange::least, &TimeRange::usual, &TimeRange::most})
        longest.range.*part = std::max(longest.range.*part, own.range.*part + after_[next].range.*part);
    }
  }
  return after_[node];
}

}  // namespace hami
