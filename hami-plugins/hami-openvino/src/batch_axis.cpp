// Tries shapes on the graph and observes which ones OpenVINO accepts and what output shapes it derives.
//
// A dynamic axis 0 of an output can be anything, for example the number of detected boxes. It is a batch axis only if
//  1. each output has as many rows as the inputs, and no other axis of it depends on that number,
//  2. all inputs must have the same number of rows,
//  3. no other axis of an input must be as long as the number of rows.
// Otherwise the rows of one request would influence the results of another.
#include "batch_axis.hpp"

#include <algorithm>
#include <map>
#include <set>

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
  BatchAxisProbe(Graph& graph, const std::vector<Port>& inputs, std::vector<int> axes)
      : graph_(graph), inputs_(inputs), axes_(std::move(axes)) {}

  bool is_batch_axis() {
    return restored(outputs_have_input_rows() && inputs_share_rows() && other_axes_are_independent());
  }
  // The second condition.
  bool rows_are_common() { return restored(inputs_share_rows()); }

 private:
  bool restored(bool found) {
    std::vector<Shape> original;
    for (const Port& input : inputs_) original.push_back(input.shape);
    if (!graph_.reshape(original))
      fail_setup("cannot restore the shapes of the model: " + graph_.library().last_error());
    return found;
  }

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
    std::vector<std::int64_t*> rows;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (axes_[i] != kShared) rows.push_back(&shapes[i][static_cast<std::size_t>(axes_[i])]);
    *rows[0] = kProbeRows;
    for (bool found = true; found;) {
      found = false;
      for (std::int64_t* const each : rows) {
        if (*each != kDynamic) continue;
        *each = kOtherProbeRows;
        const bool tied = !graph_.reshape(shapes);
        *each = tied ? kProbeRows : kDynamic;
        found = found || tied;
      }
    }
    return std::all_of(rows.begin(), rows.end(), [](const std::int64_t* each) { return *each != kDynamic; });
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
    for (std::size_t i = 0; i < inputs_.size(); ++i) shapes.push_back(with_rows(inputs_[i].shape, axes_[i], rows));
    return shapes;
  }

  Graph& graph_;
  const std::vector<Port>& inputs_;
  const std::vector<int> axes_;  // of the inputs
};

// The number of rows if axis 0 of all ports is the batch.
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
  const std::vector<int> first(inputs.size(), 0);
  return BatchAxisProbe(graph, inputs, first).is_batch_axis() ? kDynamic : kNoBatchAxis;
}

// The axes of ports by their names; nullopt: one is not known, or the port does not have it.
std::optional<std::vector<int>> axes_by_name(const std::vector<Port>& ports, const std::map<std::string, int>& known) {
  std::vector<int> axes;
  for (const Port& port : ports) {
    const auto found = known.find(port.name);
    if (found == known.end() || !port.has_rank || found->second >= static_cast<int>(port.shape.size())) return {};
    axes.push_back(found->second);
  }
  return axes;
}

// The axes that are proven; nullopt if OpenVINO has read ports of other shapes.
std::optional<BatchAxes> proven_axes(Graph& graph, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                                     const Plan& plan) {
  const auto of_inputs = axes_by_name(inputs, plan.input_axes);
  const auto of_outputs = axes_by_name(outputs, plan.output_axes);
  if (!of_inputs || !of_outputs) return {};
  BatchAxes axes{kNoBatchAxis, *of_inputs, *of_outputs};
  std::set<std::int64_t> sizes;
  std::ptrdiff_t inputs_with_rows = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (axes.inputs[i] == kShared) continue;
    ++inputs_with_rows;
    sizes.insert(inputs[i].shape[static_cast<std::size_t>(axes.inputs[i])]);
  }
  if (sizes.size() != 1 || *sizes.begin() == 0) return {};
  axes.rows = *sizes.begin();
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (axes.outputs[i] != kShared && outputs[i].shape[static_cast<std::size_t>(axes.outputs[i])] != axes.rows &&
        outputs[i].shape[static_cast<std::size_t>(axes.outputs[i])] != kDynamic)
      return {};
  if (axes.rows == kDynamic && inputs_with_rows > 1 && !BatchAxisProbe(graph, inputs, axes.inputs).rows_are_common())
    return BatchAxes{kNoBatchAxis, std::vector<int>(inputs.size(), kShared), std::vector<int>(outputs.size(), kShared)};
  return axes;
}

}  // namespace

Shape without_axis(Shape shape, int axis) {
  if (axis != kShared && static_cast<std::size_t>(axis) < shape.size()) shape.erase(shape.begin() + axis);
  return shape;
}

Shape with_rows(Shape shape, int axis, std::int64_t rows) {
  if (axis != kShared) shape[static_cast<std::size_t>(axis)] = rows;
  return shape;
}

BatchAxes find_batch_axes(Graph& graph, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                          std::optional<bool> batched, const Plan& plan) {
  if (batched != false && plan.rows == Plan::Rows::kIndependent)
    if (const std::optional<BatchAxes> proven = proven_axes(graph, inputs, outputs, plan)) return *proven;
  const std::int64_t rows = find_batch_rows(graph, inputs, outputs, batched);
  const int axis = rows == kNoBatchAxis ? kShared : 0;
  return {rows, std::vector<int>(inputs.size(), axis), std::vector<int>(outputs.size(), axis)};
}

}  // namespace hami_openvino
