// Comparison: whether an alternative is better than the current policy, from gains that vary by chance. Pure statistics.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "schedule/policy_constants.hpp"

namespace hami {

class Comparison {
 public:
  // The logarithm of the cost of the policy over that of the alternative: above zero, the alternative is better.
  void add(double gain) noexcept {
    const double off = gain - gain_, weight = newest_weight(++count_);
    gain_ += weight * off;
    spread_ += weight * ((1 - weight) * off * off - spread_);
  }
  // The mean gain.
  double gain() const noexcept { return gain_; }
  // The mean gain is neither negligible nor chance. 2 + 4 / (n - 1)^2 approximates the 97 % quantile of Student's t distribution
  // for n comparisons (6.3, 2.9, 2.4, … 1.9).
  bool is_sure() const noexcept {
    if (count_ < 2) return false;
    const double freedom = 1 / newest_weight(count_) - 1;
    const double chance = (2 + 4 / (freedom * freedom)) * std::sqrt(spread_ / freedom);
    return std::abs(gain_) > std::max(policy::kNegligible, chance);
  }
  bool prefers_alternative() const noexcept { return is_sure() && gain_ > 0; }
  // It has a result: the difference is significant, or so many comparisons have found none.
  bool is_decided() const noexcept { return is_sure() || count_ >= policy::kComparisons; }
  std::size_t count() const noexcept { return count_; }
  // The same comparison seen from the alternative.
  Comparison reversed() const noexcept {
    Comparison back = *this;
    back.gain_ = -gain_;
    return back;
  }

 private:
  static double newest_weight(std::size_t count) noexcept {
    return 1 / static_cast<double>(std::min(count, policy::kComparisons));
  }

  double gain_ = 0, spread_ = 0;  // mean and mean squared deviation
  std::size_t count_ = 0;
};

}  // namespace hami
