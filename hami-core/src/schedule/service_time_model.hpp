// ServiceTimeModel: learns the time of a batch of b items while batches run: by size, and as the line
// t(b) = overhead + per_item * b.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"
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
  // Ignores the first run of a size, which may allocate, compile or capture.
  void add(std::size_t items, Nanoseconds took) noexcept;
  // Whether batches of about so many items were measured.
  bool measured(std::size_t items) const noexcept { return sizes_[index_of(items)].known(); }
  // Empty until two sizes are known.
  const std::optional<ServiceTime>& line() const noexcept { return line_; }
  // The time of `items` items in nanoseconds, from the nearest known size; empty if none is known.
  std::optional<double> of(std::size_t items) const noexcept;
  // The smallest size in [min_items, max_items] whose time per item is within 2 % of the best observed.
  TargetSize target_batch_size(std::size_t min_items, std::size_t max_items) const noexcept;

 private:
  // Runs of similar sizes, from a power of two to the next: a recent, near-fastest time.
  struct Size {
    double items = 0;
    double took = 0;
    std::uint64_t runs = 0;
    std::uint64_t last = 0;  // the number of the newest run

    bool known() const noexcept { return runs >= policy::kKnown; }
    double each() const noexcept { return took / items; }
  };
  static constexpr std::size_t kSizes = 24;  // batches of 2^23 items and more count as one size
  static std::size_t index_of(std::size_t items) noexcept;
  void fit() noexcept;

  std::array<Size, kSizes> sizes_{};
  std::size_t known_ = 0;  // sizes
  std::uint64_t runs_ = 0;
  std::optional<ServiceTime> line_;
};

}  // namespace hami
