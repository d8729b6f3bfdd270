// What several containers are made of: a backend that passes calls on, and the outcome of one that changes nothing.
#pragma once

#include "backend/api.hpp"
#include "registry/api.hpp"
#include "request/api.hpp"

namespace hami {

// Forwarding: base of backends that wrap another one and pass all calls on.
class Forwarding : public Backend {
 public:
  bool is_asynchronous() const noexcept override { return target_->is_asynchronous(); }

 protected:
  BackendPtr target_;

 private:
  void forward_(Batch batch) override { target_->forward(batch); }
  void forward_with_dep_(Batch batch, Backend& dependency) override { target_->forward_with_dep(batch, dependency); }
  void inject_dependency_(const BackendPtr& dependency) override { target_->inject_dependency(dependency); }
  void post_(Batch batch, InlinePolicy how) override { target_->post(batch, how); }
  Range range_() const override { return target_->range(); }
  CostFunction request_cost_() const override { return target_->request_cost(); }
};

// Builds all items and injects each into the one before it.
std::vector<BackendPtr> make_injected(Init& init);

// set_result_to_data: the outcome of backends that do not change a request.
// `result` = `data`; without `data` the request fails.
inline void set_result_to_data(Request& request) {
  if (const Value* data = request.dict.find(kData))
    request.dict.set(kResult, Value(*data));
  else
    request.fail(Error(ErrorCode::kRequest, "the request has no `data`"));
}

inline void set_result_to_data(Batch batch) {
  for (Request* request : batch) set_result_to_data(*request);
}

}  // namespace hami
