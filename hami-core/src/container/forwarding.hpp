// Forwarding: base of backends that wrap another one and pass all calls on.
#pragma once

#include "backend/init.hpp"
#include "registry/registry.hpp"

namespace hami {

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
};

// Builds all items and injects each into the one before it.
std::vector<BackendPtr> make_injected(Init& init);

}  // namespace hami
