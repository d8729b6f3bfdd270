// Decides which axes of a model are the batch: along which axes requests may be joined.
#pragma once

#include "graph.hpp"
#include "plan.hpp"

namespace hami_openvino {

constexpr std::int64_t kNoBatchAxis = 0;
constexpr int kShared = -1;  // the axis of a port that all rows share

// Where the rows of a batch are.
struct BatchAxes {
  std::int64_t rows = kNoBatchAxis;  // kDynamic: any number; N: exactly N; kNoBatchAxis: requests cannot be joined
  std::vector<int> inputs;           // the axis of each input, or kShared
  std::vector<int> outputs;
};

// The axes that are proven, if rows are; else axis 0, if it is the batch. `batched` is the setting of the user; nullopt
// means that the model decides.
// `inputs` and `outputs` are those of the graph. The graph has its original shapes again afterwards.
BatchAxes find_batch_axes(Graph& graph, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                          std::optional<bool> batched, const Plan& plan);

// The shape without the axis of the rows, and the other way round.
Shape without_axis(Shape shape, int axis);
Shape with_rows(Shape shape, int axis, std::int64_t rows);

}  // namespace hami_openvino
