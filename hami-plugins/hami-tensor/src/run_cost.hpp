// RunCost: what a run of an engine takes, learned from its runs, and the cheapest way to divide items of unequal length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hami_tensor {

// An item that an engine may run with others, padded to the longest of them.
struct Sized {
  std::int64_t rows = 1;
  std::int64_t length = 0;
};

// A run takes `fixed + per_unit * rows * length ^ power` seconds.
class RunCost {
 public:
  // `fixed_lengths`: the fixed part as the number of positions that take as long; negative: learn it.
  explicit RunCost(double fixed_lengths = -1) noexcept : fixed_lengths_(fixed_lengths) {}

  void learn(std::int64_t rows, std::int64_t length, double seconds) noexcept;

  // Divides items, which are sorted by length, into runs that take the least time together: the end of each run. Until the
  // cost is known, only items of one length share a run. A run has at most `max_items` items, and at most `max_positions`
  // positions unless it has one item.
  std::vector<std::size_t> divide(const std::vector<Sized>& items, std::size_t max_items,
                                  std::int64_t max_positions) const;

 private:
  // Sums of a linear regression of seconds over work, each run weighted by its relative error, with older ones fading.
  struct Regression {
    double weight = 0, work = 0, seconds = 0, work_work = 0, work_seconds = 0, seconds_seconds = 0;
  };
  struct Line {
    double fixed = 0;  // in units of work
    double power = 1;
    bool known = false;
  };
  Line line() const noexcept;

  // Attention is quadratic in the length, everything else linear.
  static constexpr std::array<double, 5> kPowers{1, 1.25, 1.5, 1.75, 2};
  static constexpr double kFading = 0.98;          // a run counts half after 34 more
  static constexpr double kMinRuns = 8;            // before the cost is believed
  static constexpr double kMinVariation = 0.0025;  // of work, relative: a standard deviation of 5 %

  double fixed_lengths_;
  std::array<Regression, kPowers.size()> regressions_{};
  std::int64_t runs_ = 0;
};

}  // namespace hami_tensor
