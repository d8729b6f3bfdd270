// ServiceTimeModel: the usual time of each batch size, and the fitted line.
#include "schedule/service_time_model.hpp"

#include <algorithm>
#include <cmath>

#include "schedule/policy_constants.hpp"

namespace hami {

using namespace policy;

namespace {

std::size_t floor_log2(std::size_t number) noexcept {
  std::size_t log = 0;
  while (number >>= 1) ++log;
  return log;
}

}  // namespace

void ServiceTimeModel::add(std::size_t items, Nanoseconds took) noexcept {
  if (items == 0) return;
  const std::size_t index = floor_log2(items);
  largest_ = std::max(largest_, index);
  Size& size = sizes_[index];
  ++runs_;
  if (++size.runs == 1) return;
  const double count = static_cast<double>(items);
  double time = std::max(1.0, static_cast<double>(took));
  double weight = 1;
  if (size.runs > 2) {
    const double usual = size.each() * count;  // a slower run counts at most as a multiple of it
    weight = time > usual ? kSlower : size.runs > kKnown ? 2.0 / kSmooths : 1;
    time = std::min(time, kUncertain * usual);
  }
  size.items += weight * (count - size.items);
  size.took += weight * (time - size.took);
  size.last = runs_;
  fit();
}

// Least squares of the relative error, so that small batches weigh as much as large ones; both parts are at least zero.
void ServiceTimeModel::fit() noexcept {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  std::size_t known = 0;
  for (std::size_t i = 0; i <= largest_; ++i) {
    const Size& size = sizes_[i];
    if (!size.known()) continue;
    ++known;
    const double weight = 1 / (1 + static_cast<double>(runs_ - size.last) / kMemory);
    const double a = 1 / size.took;
    const double b = size.items / size.took;
    xx += weight * a * a;
    xy += weight * a * b;
    yy += weight * b * b;
    x += weight * a;
    y += weight * b;
  }
  if (known < 2) return;
  const double determinant = xx * yy - xy * xy;
  ServiceTime line;
  if (determinant > 0) line = {(x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant};
  if (determinant <= 0 || line.overhead < 0) line = {0, y / yy};
  if (line.per_item < 0) line = {x / xx, 0};
  line_ = line;
}

bool ServiceTimeModel::measured(std::size_t items) const noexcept { return sizes_[floor_log2(items)].known(); }

std::optional<double> ServiceTimeModel::of(std::size_t items) const noexcept {
  const std::size_t wanted = floor_log2(items);
  const Size* nearest = nullptr;
  std::size_t distance = sizes_.size();
  for (std::size_t i = 0; i <= largest_; ++i) {
    const std::size_t away = i > wanted ? i - wanted : wanted - i;
    if (!sizes_[i].known() || away >= distance) continue;
    nearest = &sizes_[i];
    distance = away;
  }
  if (!nearest) return std::nullopt;
  const ServiceTime line = line_.value_or(ServiceTime{0, 1});
  return nearest->took * line.of(static_cast<double>(items)) / line.of(nearest->items);
}

TargetSize ServiceTimeModel::target_batch_size(std::size_t min_items, std::size_t max_items) const noexcept {
  const std::size_t bottom = floor_log2(min_items), top = floor_log2(max_items);
  const auto items_of = [&](std::size_t index) { return index == top ? max_items : std::size_t{1} << index; };
  std::size_t lowest = top + 1, highest = 0;
  double best = 0;
  for (std::size_t i = bottom; i <= top; ++i) {
    if (!sizes_[i].known()) continue;
    best = lowest > top ? sizes_[i].each() : std::min(best, sizes_[i].each());
    lowest = std::min(lowest, i);
    highest = i;
  }
  if (lowest > top) return {};
  if (lowest > bottom) return {items_of(lowest - 1), false};
  std::size_t chosen = lowest;
  while (!sizes_[chosen].known() || sizes_[chosen].each() > best * (1 + kNegligible)) ++chosen;
  const bool grows = chosen == highest && chosen < top;
  return {items_of(grows ? chosen + 1 : chosen), !grows};
}

}  // namespace hami
