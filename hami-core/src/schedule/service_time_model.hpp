// ServiceTimeModel: learns the time of a batch of b items while batches run: by size, and as the line
// t(b) = overhead + per_item * b.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "request/api.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

struct ServiceTime {
  double overhead = 0;  // nanoseconds of each batch
  double per_item = 0;  // nanoseconds of each item

  double of(double items) const noexcept { return overhead + per_item * items; }
};

// How many items a batch should have.
struct TargetSize {
  std::size_t items = 0;  // 0: unknown
  bool settled = false;   // false: the next size to sample: first down to the smallest, then up while larger sizes gain
};

class ServiceTimeModel {
 public:
  // Ignores the first run of a size, which may allocate, compile or capture. `moment`: the end of the run; `busy`: how long the
  // instance was busy with it, with the answers to its callers; 0: as long as the run.
  void add(std::size_t items, Nanoseconds took, Nanoseconds moment = 0, Nanoseconds busy = 0) noexcept;
  // Whether batches of about so many items were measured.
  bool measured(std::size_t items) const noexcept { return sizes_[index_of(items)].known(); }
  // Empty until two sizes are known.
  const std::optional<ServiceTime>& line() const noexcept { return line_; }
  // The time of `items` items in nanoseconds, from the nearest known size; empty if none is known.
  std::optional<double> of(std::size_t items) const noexcept;
  // The time of `items` items, from sizes that are known and ran lately; empty if there are none. It is never a guess that is too
  // high: without a line, a larger size takes as long as the known one, and a smaller size its share.
  std::optional<TimeRange> range(std::size_t items, Nanoseconds moment) const noexcept;
  // Its least time, from sizes that may reject requests now; 0 if there are none.
  double certain(std::size_t items, Nanoseconds moment) const noexcept;
  // Both for later moments, until another batch runs: the least time of a batch of `smallest` items, and the range of `usual` items.
  SharedTime::Estimate estimate(std::size_t smallest, std::size_t usual, Nanoseconds moment) const noexcept;
  // The smallest size in [min_items, max_items] whose time per item is within 2 % of the best observed.
  TargetSize target_batch_size(std::size_t min_items, std::size_t max_items) const noexcept;

 private:
  // Runs of similar sizes, from a power of two to the next: a recent, near-fastest time.
  struct Size {
    double items = 0;
    double took = 0;
    std::uint64_t runs = 0;
    std::uint64_t last = 0;  // the number of the newest run
    Nanoseconds ended = 0;   // when it ended

    bool known() const noexcept { return runs >= policy::kKnown; }
    // An estimate that is too high may be the reason why nothing runs. So it does not count for long: one batch then runs, which
    // corrects it.
    double counts_for() const noexcept { return policy::kEstimateLasts * took; }
    // The first runs may all be slow, so their number counts too.
    double rejects_for() const noexcept {
      return std::min(policy::kEstimateLasts, static_cast<double>(runs) / policy::kRejectsOneIn) * took;
    }
    bool counts(Nanoseconds since_run) const noexcept { return static_cast<double>(since_run) <= counts_for(); }
    bool rejects(Nanoseconds since_run) const noexcept { return static_cast<double>(since_run) <= rejects_for(); }
    double each() const noexcept { return took / items; }
  };
  static constexpr std::size_t kSizes = 24;  // batches of 2^23 items and more count as one size
  static std::size_t index_of(std::size_t items) noexcept;
  // The known size that is nearest to `items`, of those that `use`; null: none.
  template <class Use>
  const Size* nearest(std::size_t items, Use use) const noexcept;
  const Size* nearest_counting(std::size_t items, Nanoseconds moment) const noexcept;
  const Size* nearest_rejecting(std::size_t items, Nanoseconds moment) const noexcept;
  double least(std::size_t items, const Size& from) const noexcept;
  TimeRange range_of(std::size_t items, const Size& from) const noexcept;
  void fit() noexcept;

  std::array<Size, kSizes> sizes_{};
  std::size_t known_ = 0;  // sizes
  std::uint64_t runs_ = 0;
  Nanoseconds ended_ = 0;  // the newest run
  std::optional<ServiceTime> line_;
  double excess_ = 1;  // of known sizes: the time for which an instance is busy, in multiples of the estimate; the mean
  double deviation_ = 0;  // the mean distance from it
};

}  // namespace hami
