// What a forward of b items takes, learned while it runs: t(b) = fixed + item · b.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace hami {

struct Cost {
  double fixed = 0;  // nanoseconds of a batch, whatever is in it
  double item = 0;   // and of each item

  double of(std::size_t items) const noexcept { return fixed + item * static_cast<double>(items); }
  // The smallest batch, up to `most`, whose time per item is about that of the largest; 1 where batching gains nothing.
  std::size_t worthwhile(std::size_t most) const noexcept;
};

class CostModel {
 public:
  // The first run of a size teaches nothing: it allocates, compiles, captures.
  void add(std::size_t items, Nanoseconds took) noexcept;
  // Empty until batches of two sizes were seen.
  const std::optional<Cost>& cost() const noexcept { return cost_; }

 private:
  // The runs of about one size, from a power of two to the next; averages that forget.
  struct Size {
    double items = 0;
    double took = 0;
    std::uint64_t runs = 0;
    std::uint64_t last = 0;  // the number of the newest
  };
  void fit() noexcept;

  std::array<Size, 64> sizes_{};
  std::size_t largest_ = 0;  // of the sizes that were seen
  std::uint64_t runs_ = 0;
  std::optional<Cost> cost_;
};

}  // namespace hami
