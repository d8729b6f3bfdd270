// PolicyTrial: rounds of batches, and the recent mean gain of the other policy.
#include "schedule/policy_trial.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/policy_constants.hpp"

namespace hami {

using namespace policy;

void PolicyTrial::record_batch(Nanoseconds latency, std::size_t requests) noexcept {
  if (++batches_ <= kRound / 3) return;
  latency_ += static_cast<double>(latency) * static_cast<double>(requests);
  requests_ += static_cast<double>(requests);
  if (batches_ < kRound) return;
  const double mean = std::max(1.0, latency_ / requests_);
  batches_ = 0;
  latency_ = requests_ = 0;
  if (std::exchange(trying_, false)) {
    tried_ = mean;
    return;
  }
  if (tried_ > 0) {
    rounds_ = 0;
    compare(std::log(std::sqrt(kept_ * mean) / std::exchange(tried_, 0)));
  }
  kept_ = mean;
  trying_ = ++rounds_ >= pause_ && differed_;
  if (!trying_) differed_ = false;
}

// Decides when the mean gain is significant: 2 + 4 / (n - 1)^2 approximates the 97 % quantile of Student's t distribution for n
// comparisons (6.3, 2.9, 2.4, … 1.9).
void PolicyTrial::compare(double gain) noexcept {
  const double off = gain - gain_, weight = 1 / static_cast<double>(std::min(++comparisons_, kSmooths));
  gain_ += weight * off;
  spread_ += weight * ((1 - weight) * off * off - spread_);
  if (comparisons_ < 2) return;
  const double freedom = 1 / weight - 1, error = std::sqrt(spread_ / freedom);
  const bool sure = std::abs(gain_) > std::max(kNegligible, (2 + 4 / (freedom * freedom)) * error);
  if (sure && gain_ > 0) {
    uses_alternative_ = !uses_alternative_;
    gain_ = -gain_;
  }
  if (sure || comparisons_ >= kSmooths) pause_ = std::clamp(2 * pause_, kMemory / 2, kMemory);
}

}  // namespace hami
