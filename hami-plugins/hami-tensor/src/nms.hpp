// Non-maximum suppression of boxes in CPU memory: which boxes of a set are kept, and in which order.
#pragma once

#include <cstdint>
#include <vector>

namespace hami_tensor {

// x1, y1, x2, y2, or centre x, centre y, width, height and an angle in radians: `stride` floats each.
struct BoxSet {
  const float* boxes = nullptr;
  int stride = 4;                   // 4 or 5
  const double* scores = nullptr;   // of each box
  const double* classes = nullptr;  // of each box; null: all boxes are of one class
  std::int64_t count = 0;
};

struct NmsRules {
  double iou_threshold = 0.45;    // a box that overlaps a better one of its class by more is removed
  double score_threshold = 0.25;  // boxes with this score or less are removed
  std::int64_t max_boxes = 300;
};

struct NmsResult {
  std::vector<std::int64_t> indices;  // the best first; of equal scores the lower index first
  std::vector<double> scores;         // of these; soft suppression lowers them
  std::int64_t nan_boxes = 0;         // left out: the score is NaN, or it passes and a coordinate is NaN
};

// Greedy: a box is kept if no kept box of its class overlaps it by more than the threshold. The intersection over union is
// computed in float32, and in float64 for boxes with an angle. Boxes without an area overlap nothing.
NmsResult suppress(const BoxSet& set, const NmsRules& rules);

// Soft-NMS (Bodla et al., 2017) with the Gaussian penalty: each kept box multiplies the scores of the others of its class by
// exp(-iou² / sigma), until no score is above the threshold. `iou_threshold` does not matter.
NmsResult suppress_softly(const BoxSet& set, const NmsRules& rules, double sigma);

}  // namespace hami_tensor
