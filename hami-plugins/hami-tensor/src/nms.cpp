// Greedy and soft suppression of boxes, with and without an angle.
#include "nms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <unordered_map>

namespace hami_tensor {
namespace {

struct Candidate {
  double score;
  std::int64_t index;
};

bool is_better(const Candidate& a, const Candidate& b) noexcept {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

// The boxes above the threshold, in their order, without those with NaN.
std::vector<Candidate> candidates_of(const BoxSet& set, const NmsRules& rules, std::int64_t& nan_boxes) {
  std::vector<Candidate> found;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const double score = set.scores[i];
    if (score <= rules.score_threshold) continue;
    const float* const box = set.boxes + i * set.stride;
    if (std::isnan(score) || std::any_of(box, box + set.stride, [](float value) { return std::isnan(value); }))
      ++nan_boxes;
    else
      found.push_back({score, i});
  }
  return found;
}

// Numbers the classes in the order in which they are seen.
class Groups {
 public:
  explicit Groups(const double* classes) noexcept : classes_(classes) {}
  std::size_t of(std::int64_t index) {
    return classes_ ? numbers_.try_emplace(classes_[index], numbers_.size()).first->second : 0;
  }

 private:
  const double* classes_;
  std::unordered_map<double, std::size_t> numbers_;
};

// The largest float32 that is not above the number: for float32 x, x > number exactly if x > round_down(number).
float round_down(double number) noexcept {
  const auto rounded = static_cast<float>(number);
  return static_cast<double>(rounded) <= number ? rounded
                                                : std::nextafter(rounded, -std::numeric_limits<float>::infinity());
}

struct Box {
  float x1, y1, x2, y2;

  explicit Box(const float* from) noexcept : x1(from[0]), y1(from[1]), x2(from[2]), y2(from[3]) {}
  float area() const noexcept { return (x2 - x1) * (y2 - y1); }
};

inline float iou(float x1, float y1, float x2, float y2, float area, const Box& other, float other_area) noexcept {
  const float left = x1 > other.x1 ? x1 : other.x1;
  const float top = y1 > other.y1 ? y1 : other.y1;
  const float right = x2 < other.x2 ? x2 : other.x2;
  const float bottom = y2 < other.y2 ? y2 : other.y2;
  const float width = right - left > 0 ? right - left : 0;
  const float height = bottom - top > 0 ? bottom - top : 0;
  const float both = width * height;
  return both / (area + other_area - both);
}

// The kept boxes of a class as columns, so that the compiler compares several at once.
class KeptBoxes {
 public:
  explicit KeptBoxes(float threshold) noexcept : threshold_(threshold) {}

  bool overlaps(const float* from) const noexcept {
    const Box box(from);
    const float area = box.area();
    for (const Block& block : blocks_) {
      int hits = 0;
      for (std::size_t i = 0; i < kSize; ++i)
        hits |= iou(block.x1[i], block.y1[i], block.x2[i], block.y2[i], block.area[i], box, area) > threshold_;
      if (hits) return true;
    }
    return false;
  }
  void add(const float* from) {
    const std::size_t at = count_++ % kSize;
    if (at == 0) blocks_.emplace_back();  // zeros, which overlap nothing
    const Box box(from);
    Block& block = blocks_.back();
    block.x1[at] = box.x1;
    block.y1[at] = box.y1;
    block.x2[at] = box.x2;
    block.y2[at] = box.y2;
    block.area[at] = box.area();
  }

 private:
  static constexpr std::size_t kSize = 16;  // a few registers; the search ends after a block with an overlap
  struct Block {
    std::array<float, kSize> x1{}, y1{}, x2{}, y2{}, area{};
  };
  float threshold_;
  std::size_t count_ = 0;
  std::vector<Block> blocks_;
};

struct Point {
  double x, y;
};

// A box with an angle: its corners clockwise in the picture, its area, and the distance of its corners from the centre.
struct RotatedBox {
  std::array<Point, 4> corners{};
  Point centre;
  double area;
  double radius;

  explicit RotatedBox(const float* from) noexcept
      : centre{from[0], from[1]},
        area(static_cast<double>(from[2]) * static_cast<double>(from[3])),
        radius(std::hypot(static_cast<double>(from[2]), static_cast<double>(from[3])) / 2) {
    const double cosine = std::cos(static_cast<double>(from[4]));
    const double sine = std::sin(static_cast<double>(from[4]));
    constexpr std::array<Point, 4> kSigns{{{-1, -1}, {1, -1}, {1, 1}, {-1, 1}}};
    for (std::size_t i = 0; i < corners.size(); ++i) {
      const double x = kSigns[i].x * static_cast<double>(from[2]) / 2;
      const double y = kSigns[i].y * static_cast<double>(from[3]) / 2;
      corners[i] = {centre.x + x * cosine - y * sine, centre.y + x * sine + y * cosine};
    }
  }
};

double cross(const Point& origin, const Point& a, const Point& b) noexcept {
  return (a.x - origin.x) * (b.y - origin.y) - (a.y - origin.y) * (b.x - origin.x);
}

// The area of the intersection: `one` is cut at each side of `other` (Sutherland and Hodgman, 1974).
double shared_area(const RotatedBox& one, const RotatedBox& other) {
  std::vector<Point> polygon(one.corners.begin(), one.corners.end());
  std::vector<Point> cut;
  for (std::size_t side = 0; side < 4 && !polygon.empty(); ++side) {
    const Point& from = other.corners[side];
    const Point& to = other.corners[(side + 1) % 4];
    cut.clear();
    for (std::size_t i = 0; i < polygon.size(); ++i) {
      const Point& a = polygon[i];
      const Point& b = polygon[(i + 1) % polygon.size()];
      const double inside_a = cross(from, to, a);
      const double inside_b = cross(from, to, b);
      if (inside_a >= 0) cut.push_back(a);
      if ((inside_a > 0 && inside_b < 0) || (inside_a < 0 && inside_b > 0)) {
        const double part = inside_a / (inside_a - inside_b);
        cut.push_back({a.x + part * (b.x - a.x), a.y + part * (b.y - a.y)});
      }
    }
    polygon.swap(cut);
  }
  double doubled = 0;
  for (std::size_t i = 2; i < polygon.size(); ++i) doubled += cross(polygon[0], polygon[i - 1], polygon[i]);
  return doubled / 2;
}

double iou(const RotatedBox& one, const RotatedBox& other) {
  if (!(one.area > 0) || !(other.area > 0) ||
      std::hypot(one.centre.x - other.centre.x, one.centre.y - other.centre.y) > one.radius + other.radius)
    return 0;
  const double both = shared_area(one, other);
  return both / (one.area + other.area - both);
}

class KeptRotatedBoxes {
 public:
  explicit KeptRotatedBoxes(double threshold) noexcept : threshold_(threshold) {}

  bool overlaps(const float* from) const {
    const RotatedBox box(from);
    return std::any_of(boxes_.begin(), boxes_.end(),
                       [&](const RotatedBox& kept) { return iou(kept, box) > threshold_; });
  }
  void add(const float* from) { boxes_.emplace_back(from); }

 private:
  double threshold_;
  std::vector<RotatedBox> boxes_;
};

template <class Kept, class Threshold>
void keep_best(const BoxSet& set, const NmsRules& rules, Threshold threshold, std::vector<Candidate> candidates,
               NmsResult& result) {
  std::sort(candidates.begin(), candidates.end(), is_better);
  Groups groups(set.classes);
  std::vector<Kept> kept;
  for (const Candidate& candidate : candidates) {
    if (static_cast<std::int64_t>(result.indices.size()) >= rules.max_boxes) return;
    const std::size_t group = groups.of(candidate.index);
    if (group >= kept.size()) kept.emplace_back(threshold);
    const float* const box = set.boxes + candidate.index * set.stride;
    if (kept[group].overlaps(box)) continue;
    kept[group].add(box);
    result.indices.push_back(candidate.index);
    result.scores.push_back(candidate.score);
  }
}

double overlap_of(const BoxSet& set, std::int64_t one, std::int64_t other) {
  const float* const a = set.boxes + one * set.stride;
  const float* const b = set.boxes + other * set.stride;
  if (set.stride == 5) return iou(RotatedBox(a), RotatedBox(b));
  const Box box(a);
  const Box second(b);
  return static_cast<double>(iou(box.x1, box.y1, box.x2, box.y2, box.area(), second, second.area()));
}

}  // namespace

NmsResult suppress(const BoxSet& set, const NmsRules& rules) {
  NmsResult result;
  std::vector<Candidate> candidates = candidates_of(set, rules, result.nan_boxes);
  if (set.stride == 5)
    keep_best<KeptRotatedBoxes>(set, rules, rules.iou_threshold, std::move(candidates), result);
  else
    keep_best<KeptBoxes>(set, rules, round_down(rules.iou_threshold), std::move(candidates), result);
  return result;
}

NmsResult suppress_softly(const BoxSet& set, const NmsRules& rules, double sigma) {
  NmsResult result;
  std::vector<Candidate> left = candidates_of(set, rules, result.nan_boxes);
  const auto same_class = [&](std::int64_t one, std::int64_t other) {
    return !set.classes || set.classes[one] == set.classes[other];
  };
  while (!left.empty() && static_cast<std::int64_t>(result.indices.size()) < rules.max_boxes) {
    const auto at = std::min_element(left.begin(), left.end(), is_better);
    const Candidate best = *at;
    left.erase(at);
    result.indices.push_back(best.index);
    result.scores.push_back(best.score);
    for (Candidate& other : left) {
      if (!same_class(best.index, other.index)) continue;
      const double overlap = overlap_of(set, best.index, other.index);
      if (overlap > 0) other.score *= std::exp(-overlap * overlap / sigma);
    }
    left.erase(std::remove_if(left.begin(), left.end(),
                              [&](const Candidate& each) { return each.score <= rules.score_threshold; }),
               left.end());
  }
  return result;
}

}  // namespace hami_tensor
