// Runs infer requests, and repeats runs that a failed run beside them may have disturbed.
#include "session.hpp"

namespace hami_openvino {

void Session::attach(std::shared_ptr<CompiledModel> compiled) {
  request_ = model_->create_infer_request(*compiled);  // frees the previous request before its compiled model
  compiled_ = std::move(compiled);
}

bool Session::run(const std::function<void()>& set_inputs) {
  if (!compiled_ || compiled_->poisoned) attach(model_->compiled());
  set_inputs();
  const unsigned own_number = ++compiled_->started_runs;
  const bool started_alone = compiled_->active_runs++ == 0;
  const bool succeeded = infer();
  const bool was_poisoned = succeeded ? compiled_->poisoned.load() : compiled_->poisoned.exchange(true);
  const bool ran_alone = started_alone && compiled_->started_runs == own_number;
  --compiled_->active_runs;
  if (!was_poisoned && (succeeded || ran_alone)) return succeeded;
  // Another run failed meanwhile, or this one failed beside others: only a compiled model of its own gives an outcome
  // that is certain. It counts as poisoned, so the next run returns to the shared one.
  attach(model_->compile());
  set_inputs();
  compiled_->poisoned = true;
  return infer();
}

// Starts the run on a thread of an OpenVINO stream. A synchronous call would run on this thread, in addition to the
// configured streams.
bool Session::infer() {
  const Api& api = model_->library().api();
  return api.ov_infer_request_start_async(request_.get()) == 0 && api.ov_infer_request_wait(request_.get()) == 0;
}

}  // namespace hami_openvino
