// Tries shapes on the graph and observes which ones OpenVINO accepts and what output shapes it derives.
//
// A dynamic axis 0 of an output can be anything, for example the number of detected boxes. It is a batch axis only if
//  1. each output has as many rows as the inputs, and no other axis of it depends on that number,
//  2. all inputs must have the same number of rows,
//  3. no other axis of an input must be as long as the number of rows.
// Otherwise the rows of one request would influence the results of another.
#include "batch_axis.hpp"

#include <algorithm>

#include "error.hpp"

namespace hami_openvino {
namespace {

// Row numbers to try: primes that are unlikely to be required by a model for another reason.
constexpr std::int64_t kProbeRows = 7;
constexpr std::int64_t kOtherProbeRows = 11;
// Length to try for another axis: a power of two, because models often halve an axis several times.
constexpr std::int64_t kProbeLength = 64;

class BatchAxisProbe {
 public:
  BatchAxisProbe(Graph& graph, const std::vector<Port>& inputs) : graph_(graph), inputs_(inputs) {}

  bool is_batch_axis() {
    const bool found = outputs_have_input_rows() && inputs_share_rows() && other_axes_are_independent();
    if (!graph_.reshape(shapes_with_rows(kDynamic)))
      fail_setup("cannot restore the shapes of the model: " + graph_.library().last_error());
    return found;
  }

 private:
  bool outputs_have_input_rows() {
    if (!graph_.reshape(shapes_with_rows(kProbeRows))) return false;
    const std::vector<Port> some = graph_.outputs();
    if (!graph_.reshape(shapes_with_rows(kOtherProbeRows))) return false;
    const std::vector<Port> other = graph_.outputs();
    return std::equal(some.begin(), some.end(), other.begin(), [](const Port& a, const Port& b) {
      return a.has_rank && b.has_rank && !a.shape.empty() && a.shape.size() == b.shape.size() &&
             a.shape[0] == kProbeRows && b.shape[0] == kOtherProbeRows &&
             std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
    });
  }

  // Fixes the rows of the first input. An input is tied if OpenVINO then rejects another number of rows for it; its
  // rows are fixed too, which can tie further inputs. Repeats until no further input is tied.
  bool inputs_share_rows() {
    std::vector<Shape> shapes = shapes_with_rows(kDynamic);
    shapes[0][0] = kProbeRows;
    for (bool found = true; found;) {
      found = false;
      for (Shape& shape : shapes) {
        if (shape[0] != kDynamic) continue;
        shape[0] = kOtherProbeRows;
        const bool tied = !graph_.reshape(shapes);
        shape[0] = tied ? kProbeRows : kDynamic;
        found = found || tied;
      }
    }
    return std::all_of(shapes.begin(), shapes.end(), [](const Shape& shape) { return shape[0] != kDynamic; });
  }

  bool other_axes_are_independent() {
    for (std::size_t input = 0; input < inputs_.size(); ++input)
      for (std::size_t axis = 1; axis < inputs_[input].shape.size(); ++axis) {
        if (inputs_[input].shape[axis] != kDynamic) continue;
        const auto accepts = [&](std::int64_t rows) {
          std::vector<Shape> shapes = shapes_with_rows(rows);
          shapes[input][axis] = kProbeLength;
          return graph_.reshape(shapes);
        };
        if (!accepts(kProbeRows) && accepts(kProbeLength)) return false;
      }
    return true;
  }

  std::vector<Shape> shapes_with_rows(std::int64_t rows) const {
    std::vector<Shape> shapes;
    for (const Port& input : inputs_) {
      shapes.push_back(input.shape);
      shapes.back()[0] = rows;
    }
    return shapes;
  }

  Graph& graph_;
  const std::vector<Port>& inputs_;
};

}  // namespace

std::int64_t find_batch_rows(Graph& graph, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                             std::optional<bool> batched) {
  if (batched == false) return kNoBatchAxis;
  std::vector<Port> all = inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  const bool same_axis_0 = !inputs.empty() && std::all_of(all.begin(), all.end(), [&](const Port& port) {
    return port.has_rank && !port.shape.empty() && port.shape[0] == all[0].shape[0];
  });
  if (!same_axis_0 || all[0].shape[0] == 0) {
    if (!batched) return kNoBatchAxis;
    std::string shown;
    for (const Port& port : all) shown += (shown.empty() ? "" : ", ") + port.name + " " + port.show();
    fail_setup("batched = true needs the same axis 0 in all inputs and outputs, got " + shown);
  }
  if (all[0].shape[0] != kDynamic || batched) return all[0].shape[0];
  return BatchAxisProbe(graph, inputs).is_batch_axis() ? kDynamic : kNoBatchAxis;
}

}  // namespace hami_openvino
