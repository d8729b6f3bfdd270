// Runs of one instance, on an infer request of its own.
//
// A run that fails leaves the shapes that it came to in the compiled model: OpenVINO's CPU takes those that it believes to
// be unchanged from the run before, so that the next runs fail too or are computed with them, on every infer request.
// A model is compiled anew after a run that failed.
#pragma once

#include <functional>

#include "model.hpp"

namespace hami_openvino {

class Session {
 public:
  explicit Session(std::shared_ptr<const Model> model) : model_(std::move(model)) { use(model_->compiled()); }

  const Model& model() const noexcept { return *model_; }
  ov_infer_request_t* request() const noexcept { return request_.get(); }

  // Sets the inputs with `prepare` and runs; false: it failed, and not because of what ran beside it.
  bool run(const std::function<void()>& prepare);

 private:
  void use(std::shared_ptr<Compiled> compiled);
  bool run_once();

  std::shared_ptr<const Model> model_;
  std::shared_ptr<Compiled> compiled_;
  Owned<ov_infer_request_t> request_;  // goes before what it is of
};

}  // namespace hami_openvino
