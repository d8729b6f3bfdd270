// Runs, and runs again what another's failed run may have spoiled.
#include "session.hpp"

namespace hami_openvino {

void Session::use(std::shared_ptr<Compiled> compiled) {
  request_ = model_->request(*compiled);  // the one before goes before what it is of
  compiled_ = std::move(compiled);
}

bool Session::run(const std::function<void()>& prepare) {
  if (compiled_->spoiled) use(model_->compiled());
  prepare();
  const unsigned begun = ++compiled_->begun;
  const bool was_alone = compiled_->running++ == 0;
  const bool ran = run_once();
  const bool was_spoiled = ran ? compiled_->spoiled.load() : compiled_->spoiled.exchange(true);
  const bool is_alone = was_alone && compiled_->begun == begun;
  --compiled_->running;
  if (!was_spoiled && (ran || is_alone)) return ran;
  use(model_->compile());  // nobody else has this one
  prepare();
  compiled_->spoiled = true;
  return run_once();
}

// On a stream's own thread: run at once it would be on this one, beside the streams that were asked for.
bool Session::run_once() {
  const Api& api = model_->library().api();
  return api.ov_infer_request_start_async(request_.get()) == 0 && api.ov_infer_request_wait(request_.get()) == 0;
}

}  // namespace hami_openvino
