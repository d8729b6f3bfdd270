// ServiceTimeModel: the usual time of each batch size, and the fitted line.
#include "schedule/service_time_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace hami {

using namespace policy;

std::size_t ServiceTimeModel::index_of(std::size_t items) noexcept {
  return std::min(kSizes - 1, static_cast<std::size_t>(std::ilogb(static_cast<double>(items))));
}

void ServiceTimeModel::add(std::size_t items, Nanoseconds took, Nanoseconds moment, Nanoseconds busy) noexcept {
  if (items == 0) return;
  Size& size = sizes_[index_of(items)];
  ++runs_;
  const Nanoseconds pause = moment - std::exchange(ended_, moment);
  const bool counted = size.rejects(pause);
  size.ended = moment;
  if (++size.runs == 1) return;
  known_ += size.runs == kKnown;
  const double count = static_cast<double>(items);
  double time = std::max(1.0, static_cast<double>(took)), weight = 1;
  if (size.runs > 2) {
    const double usual = size.each() * count;  // a slower run counts at most as a multiple of it
    if (size.known()) {
      const double ratio = std::min(std::max(time, static_cast<double>(busy)) / usual, kLongest);
      deviation_ += (std::abs(ratio - excess_) - deviation_) / kMeanOf;
      excess_ += (ratio - excess_) / kMeanOf;
    }
    weight = time > usual ? kSlowerWeight : size.runs > kKnown && counted ? kFasterWeight : 1;
    time = std::min(time, kUncertain * usual);
  }
  size.items += weight * (count - size.items);
  size.took += weight * (time - size.took);
  size.last = runs_;
  fit();
}

// Least squares of the relative error, so that small batches weigh as much as large ones; both parts are at least zero.
void ServiceTimeModel::fit() noexcept {
  if (known_ < 2) return;
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  for (const Size& size : sizes_) {
    if (!size.known()) continue;
    const double weight = 1 / (1 + static_cast<double>(runs_ - size.last) / kHalfAfter);
    const double a = 1 / size.took, b = size.items / size.took;
    xx += weight * a * a;
    xy += weight * a * b;
    yy += weight * b * b;
    x += weight * a;
    y += weight * b;
  }
  const double determinant = xx * yy - xy * xy;  // above zero: the sizes differ
  line_ = ServiceTime{(x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant};
  if (!(line_->overhead >= 0)) line_ = ServiceTime{0, y / yy};
  if (line_->per_item < 0) line_ = ServiceTime{x / xx, 0};
}

template <class Use>
const ServiceTimeModel::Size* ServiceTimeModel::nearest(std::size_t items, Use use) const noexcept {
  const Size& own = sizes_[index_of(items)];
  const Size* found = nullptr;
  const auto distance = [&](const Size& size) { return std::abs(&size - &own); };
  for (const Size& size : sizes_)
    if (size.known() && use(size) && (!found || distance(size) < distance(*found))) found = &size;
  return found;
}

std::optional<double> ServiceTimeModel::of(std::size_t items) const noexcept {
  const Size* const known = nearest(items, [](const Size&) { return true; });
  if (!known) return std::nullopt;
  const ServiceTime line = line_.value_or(ServiceTime{0, 1});
  return known->took * line.of(static_cast<double>(items)) / line.of(known->items);
}

double ServiceTimeModel::least(std::size_t items, const Size& from) const noexcept {
  const double count = static_cast<double>(items);
  return from.took * (line_ ? line_->of(count) / line_->of(from.items) : std::min(1.0, count / from.items));
}

TimeRange ServiceTimeModel::range_of(std::size_t items, const Size& from) const noexcept {
  const double time = least(items, from);
  return {time, time * std::max(1.0, excess_), time * std::max(1.0, excess_ + kDeviations * deviation_)};
}

const ServiceTimeModel::Size* ServiceTimeModel::nearest_counting(std::size_t items, Nanoseconds moment) const noexcept {
  return nearest(items, [&](const Size& size) { return size.counts(moment - size.ended); });
}

const ServiceTimeModel::Size* ServiceTimeModel::nearest_rejecting(std::size_t items,
                                                                  Nanoseconds moment) const noexcept {
  return nearest(items, [&](const Size& size) { return size.rejects(moment - size.ended); });
}

std::optional<TimeRange> ServiceTimeModel::range(std::size_t items, Nanoseconds moment) const noexcept {
  const Size* const known = nearest_counting(items, moment);
  return known ? std::optional(range_of(items, *known)) : std::nullopt;
}

double ServiceTimeModel::certain(std::size_t items, Nanoseconds moment) const noexcept {
  const Size* const known = nearest_rejecting(items, moment);
  return known ? least(items, *known) : 0;
}

SharedTime::Estimate ServiceTimeModel::estimate(std::size_t smallest, std::size_t usual,
                                                Nanoseconds moment) const noexcept {
  SharedTime::Estimate found;
  if (const Size* const known = nearest_rejecting(smallest, moment)) {
    found.time.certain = least(smallest, *known);
    found.certain_until = after(known->ended, to_nanoseconds(known->rejects_for()));
  }
  if (const Size* const known = nearest_counting(usual, moment)) {
    found.time.range = range_of(usual, *known);
    found.range_until = after(known->ended, to_nanoseconds(known->counts_for()));
  }
  return found;
}

TargetSize ServiceTimeModel::target_batch_size(std::size_t min_items, std::size_t max_items) const noexcept {
  const std::size_t bottom = index_of(min_items), top = index_of(max_items);
  const auto items_of = [&](std::size_t index) { return index == top ? max_items : std::size_t{1} << index; };
  std::size_t lowest = top + 1, highest = 0, chosen = 0;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = top + 1;
       i-- > bottom;) {  // so that a smaller size needs to be nearly as good as the larger ones only
    if (!sizes_[i].known()) continue;
    highest = std::max(highest, i);
    lowest = i;
    best = std::min(best, sizes_[i].each());
    if (sizes_[i].each() <= best * (1 + kNegligible)) chosen = i;
  }
  if (lowest > top) return {};
  if (lowest > bottom) return {items_of(lowest - 1), false};
  const bool grows = chosen == highest && chosen < top;
  return {items_of(grows ? chosen + 1 : chosen), !grows};
}

}  // namespace hami
