// The part of the batching policy that several instances need.
#include "schedule/batch_policy.hpp"

#include <algorithm>

namespace hami {

std::size_t share(std::size_t items, std::size_t instances, std::size_t max_items, const ServiceTimeModel& solo,
                  const ServiceTimeModel& contended) noexcept {
  const std::size_t together = std::min(items, max_items), each = (items + instances - 1) / instances;
  if (each >= together) return max_items;
  const auto either = [](const std::optional<double>& one, const std::optional<double>& other) {
    return one ? one : other;
  };
  const std::optional<double> spread = either(contended.of(each), solo.of(each));
  const std::optional<double> whole = either(solo.of(together), contended.of(together));
  return spread && *spread * (1 + policy::kNegligible) < *whole ? each : max_items;
}

}  // namespace hami
