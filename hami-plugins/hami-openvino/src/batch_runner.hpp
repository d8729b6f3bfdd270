// Runs a batch on a session: requests of equal shapes together, and the others separately.
#pragma once

#include <functional>
#include <hami/model_keys.hpp>
#include <string>

#include "exact_cast.hpp"
#include "session.hpp"

namespace hami_openvino {

// What a batch reports in addition to its results.
struct BatchReport {
  std::function<void()> watched;                    // a request of a joined batch ran again alone
  std::function<void(const std::string&)> stopped;  // its result was another one; requests are not joined any more
};

// Completes each item: sets `result` to a tensor (to a dict by name if the model has several outputs, which also become keys), or fails it.
void run_batch(hami::Batch batch, Session& session, const hami::ModelKeys& keys, Cast cast, const BatchReport& report);

}  // namespace hami_openvino
