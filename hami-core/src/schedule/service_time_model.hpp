// What a forward of b items takes, learned while it runs: by size as it was seen, and as a line t(b) = fixed + item · b.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace hami {

struct ServiceTime {
  double overhead = 0;  // nanoseconds of a batch, whatever is in it
  double per_item = 0;   // and of each item

  double of(double items) const noexcept { return overhead + per_item * items; }
};

// How large batches should be.
struct TargetSize {
  std::size_t items = 0;  // 0: nothing was seen
  bool settled = false;   // else it is the next size to try: first down to the smallest, then up for as long as that pays
};

class ServiceTimeModel {
 public:
  // The first run of a size teaches nothing: it allocates, compiles, captures.
  void add(std::size_t items, Nanoseconds took) noexcept;
  // Empty until two sizes are known.
  const std::optional<ServiceTime>& line() const noexcept { return line_; }
  // What so many items take, in nanoseconds, told from the nearest size that was seen; empty if none was.
  std::optional<double> of(std::size_t items) const noexcept;
  // Of batches of `least` to `most` the smallest whose time per item is about the best that was seen; 1 where batching gains
  // nothing.
  TargetSize target_batch_size(std::size_t min_items, std::size_t max_items) const noexcept;

 private:
  static constexpr std::uint64_t kKnown = 3;  // runs, the first of which teaches nothing
  // The runs of about one size, from a power of two to the next: what is usual lately, near the fastest.
  struct Size {
    double items = 0;
    double took = 0;
    std::uint64_t runs = 0;
    std::uint64_t last = 0;  // the number of the newest

    bool known() const noexcept { return runs >= kKnown; }
    double each() const noexcept { return took / items; }
  };
  void fit() noexcept;

  std::array<Size, 64> sizes_{};
  std::size_t largest_ = 0;  // of the sizes that were seen
  std::uint64_t runs_ = 0;
  std::optional<ServiceTime> line_;
};

}  // namespace hami
