// Runs a batch on a session: requests of equal shapes together, a failing one without its neighbours.
#pragma once

#include "feed.hpp"
#include "session.hpp"

namespace hami_openvino {

// Gives each item its `result`: a tensor, or a dict by name if the model has several outputs.
void run_batch(hami::Batch batch, Session& session);

}  // namespace hami_openvino
