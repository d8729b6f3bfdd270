// Decides whether axis 0 of a model is a batch axis: whether requests may be joined along it.
#pragma once

#include "graph.hpp"

namespace hami_openvino {

constexpr std::int64_t kNoBatchAxis = 0;

// The number of rows that a batch has: kDynamic for any number, N for exactly N, kNoBatchAxis if requests cannot be
// joined. `batched` is the setting of the user; nullopt means that the model decides.
// `inputs` and `outputs` are those of the graph. The graph has its original shapes again afterwards.
std::int64_t find_batch_rows(Graph& graph, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
                             std::optional<bool> batched);

}  // namespace hami_openvino
