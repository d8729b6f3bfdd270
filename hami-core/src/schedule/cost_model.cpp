// CostModel: moving averages by size, and the line through them.
#include "schedule/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace hami {
namespace {

constexpr double kNewest = 0.125;        // the weight of the newest run in an average
constexpr double kOutlier = 4;           // a run that was interrupted counts for no more than this times the average
constexpr double kForgets = 256;         // after so many runs of other sizes an average weighs half
constexpr double kNegligible = 0.02;     // what a smaller batch may cost more per item
constexpr double kPays = 0.1;            // below this part of a single item's time, what is fixed may be noise
constexpr double kFull = 0.9;            // from this part on a batch may as well be full

std::size_t floor_log2(std::size_t number) noexcept {
  std::size_t log = 0;
  while (number >>= 1) ++log;
  return log;
}

}  // namespace

std::size_t Cost::worthwhile(std::size_t most) const noexcept {
  if (fixed < kPays * of(1)) return 1;
  // fixed / b + item <= (1 + kNegligible) · (fixed / most + item), solved for b
  const double all = static_cast<double>(most);
  const double least = fixed / (kNegligible * item + (1 + kNegligible) * fixed / all);
  return least >= kFull * all ? most : std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(least)));
}

void CostModel::add(std::size_t items, Nanoseconds took) noexcept {
  if (items == 0) return;
  const std::size_t index = floor_log2(items);
  largest_ = std::max(largest_, index);
  Size& size = sizes_[index];
  ++runs_;
  if (++size.runs == 1) return;
  const double count = static_cast<double>(items);
  const double time = std::max(1.0, static_cast<double>(took));
  if (size.runs == 2) {
    size.items = count;
    size.took = time;
  } else {
    size.items += kNewest * (count - size.items);
    size.took += kNewest * (std::min(time, kOutlier * size.took) - size.took);
  }
  size.last = runs_;
  fit();
}

// Least squares of the relative error, so that a small batch counts as much as a large one; neither part is below zero.
void CostModel::fit() noexcept {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  std::size_t known = 0;
  for (std::size_t i = 0; i <= largest_; ++i) {
    const Size& size = sizes_[i];
    if (size.runs < 2) continue;
    ++known;
    const double weight = 1 / (1 + static_cast<double>(runs_ - size.last) / kForgets);
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
  Cost cost;
  if (determinant > 0) cost = {(x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant};
  if (determinant <= 0 || cost.fixed < 0) cost = {0, y / yy};
  if (cost.item < 0) cost = {x / xx, 0};
  cost_ = cost;
}

}  // namespace hami
