// CostModel: learns the time of a batch of requests of unequal cost, and which of those that wait form the next batch.
//
// A batch of n items, of which the largest costs c, takes t = fixed + each * n * c^power: its engine pads all items to the largest.
// Attention is quadratic in the length and everything else linear, so the power is learned between 1 and 2.
//
// Choice. The requests that wait are divided by their costs into the batches that take the least time together. The one with the
// least time per item runs first: no other order answers requests sooner on average. A request that has waited kPatience times as
// long as it takes alone, or has no more than that until its deadline, is due; then the batch of the first one in order that is due
// runs. So a request waits no longer than that and the batches of those ahead of it.
//
// Share. k instances, of which each is free in f, end what waits at the same time if each of their batches ends in
//
//   (sum of f + time of all batches on one instance + fixed * the batches that this adds) / k
//
// The instance takes no more of the chosen batch than ends in this time, with the k that makes it least.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "request/api.hpp"

namespace hami {

class CostModel {
 public:
  // Of the requests with costs from `least` to `most`, in their order, those that are the first `items`.
  struct Choice {
    double least = 0, most = 0;
    std::size_t items = 0;
    double all = 0;           // the time of all batches into which those that wait are divided
    std::size_t batches = 0;  // their number; 0: no times are known, and nothing is shared
  };

  CostModel();  // nothing allocates later

  // A batch whose cost is far from the usual one does not count: it would outweigh all others. If as many follow each other as learning
  // needs, the load has changed, and learning starts again.
  void learn(std::size_t items, double cost, Nanoseconds took) noexcept;
  // Until the times of eight batches of unequal cost or size were learned, only requests of equal cost share a batch.
  bool known() const noexcept { return known_; }
  double time(double items, double cost) const noexcept;  // in nanoseconds
  // The time of a batch as a multiple of that of as many items of a usual cost; 1: not known.
  double to_usual(std::size_t items, double cost) const noexcept;

  // The requests that wait, in their order, at least one; those after the first kRivals are ignored.
  void clear() noexcept { waiting_.clear(); }
  bool add(const Request& request, Nanoseconds moment) noexcept;  // false: no further one counts
  const Choice& choose(std::size_t max_items) noexcept;
  // How many of the `items` of the chosen batch an instance takes, so that it ends when others have run the rest of what waits; all, if
  // that is not sooner. `free_in`: nanoseconds until each of the others is free, sorted.
  std::size_t share(const Choice& choice, std::size_t items, const std::vector<double>& free_in) const noexcept;

  // A batch starts: for the statistics. Returns the cost of its largest item.
  double note_batch(const RequestChain& batch) noexcept;
  double cost() const noexcept { return cost_; }      // of all items so far
  double padded() const noexcept { return padded_; }  // the same if each cost as much as the largest of its batch

 private:
  // Sums of a linear regression of time over work, each batch weighted by its relative error, with older ones fading.
  struct Regression {
    double weight = 0, work = 0, time = 0, work_work = 0, work_time = 0, time_time = 0;
  };
  struct Waiting {
    double cost;
    double work;  // of an item
    std::size_t items;
    std::size_t place;
  };
  void fit() noexcept;
  // Divides what waits, sorted by cost, into batches.
  void divide(std::size_t max_items) noexcept;

  static constexpr std::array<double, 5> kPowers{1, 1.25, 1.5, 1.75, 2};

  std::array<Regression, kPowers.size()> regressions_{};
  std::size_t batches_ = 0;
  std::size_t far_ = 0;  // batches in a row whose cost is far from the usual one
  bool known_ = false;
  double fixed_ = 0, each_ = 0, power_ = 1;
  double usual_ = 0;  // the mean cost when the times became known; later times are compared with it
  std::vector<Waiting> waiting_;
  std::vector<double> least_;        // [i]: the time of the first i of them
  std::vector<std::size_t> starts_;  // [i]: where the last batch of these begins
  Choice choice_;                    // the last one
  std::size_t due_ = 0;              // the place of the first request that is due
  double cost_ = 0, padded_ = 0;
};

}  // namespace hami
