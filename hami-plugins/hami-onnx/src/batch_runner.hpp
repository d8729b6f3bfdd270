// Runs a batch of requests, those with equal shapes together, so that one bad request fails alone.
#pragma once

#include "request_inputs.hpp"

namespace hami_onnx {

// What a run of batches asks and says.
struct BatchReport {
  Convert convert;
  std::function<void(std::string_view, std::int64_t)> count;  // adds to a counter of the node
  // Compares what a row got in a batch of so many rows with what it gets alone. False: they differ.
  std::function<bool(const hami::Dict& of, const std::vector<hami::Value>& together,
                     const std::vector<hami::Value>& alone, std::int64_t rows)>
      is_same;
  std::function<bool()> is_watch_due;  // counts a joined batch
};

// Sets `result` of each request, or fails it.
void run_batch(hami::Batch batch, const Session& session, const Plan& plan, const BatchReport& report);

}  // namespace hami_onnx
