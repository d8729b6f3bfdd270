// Runs a batch on a session: requests of equal shapes together, and the others separately.
#pragma once

#include "session.hpp"

namespace hami_openvino {

// Completes each item: sets `result` to a tensor (to a dict by name if the model has several outputs), or fails it.
void run_batch(hami::Batch batch, Session& session);

}  // namespace hami_openvino
