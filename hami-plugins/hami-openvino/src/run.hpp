// Runs a batch on one infer request: requests of equal shapes together, a failing one without its neighbours.
#pragma once

#include "feed.hpp"

namespace hami_openvino {

// Gives each item its `result`: a tensor, or a dict by name if the model has several outputs.
void run_batch(hami::Batch batch, const Model& model, ov_infer_request_t* request);

}  // namespace hami_openvino
