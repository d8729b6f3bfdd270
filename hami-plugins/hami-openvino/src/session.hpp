// Runs a model for one instance, on the instance's own infer request.
//
// A run that fails leaves its shapes in the compiled model. OpenVINO's CPU plugin reuses shapes that it believes to be
// unchanged since the previous run, so later runs on any infer request of that compiled model can fail or compute wrong
// results. A failed run therefore poisons the compiled model, and the next run compiles the model again.
#pragma once

#include <functional>

#include "model.hpp"

namespace hami_openvino {

class Session {
 public:
  explicit Session(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

  const Model& model() const noexcept { return *model_; }
  ov_infer_request_t* request() const noexcept { return request_.get(); }

  // Sets the inputs with `set_inputs` and runs the model. `set_inputs` can be called twice, because a run that another
  // one may have disturbed is repeated. False: the run failed because of its own inputs.
  bool run(const std::function<void()>& set_inputs);

 private:
  void attach(std::shared_ptr<CompiledModel> compiled);
  bool infer();

  std::shared_ptr<const Model> model_;
  std::shared_ptr<CompiledModel> compiled_;  // null until the first run: an instance that is not used has no buffers
  Owned<ov_infer_request_t> request_;        // of compiled_; declared after it, so that it is freed first
};

}  // namespace hami_openvino
