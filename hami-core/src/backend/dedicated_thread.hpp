// A backend that is initialised, run and closed on one thread of its own. Who waits for its init may be interrupted: then the
// init is left to itself, and what it makes is closed when it ends.
#pragma once

#include <memory>

#include "sync/worker.hpp"
#include "backend/init.hpp"

namespace hami {

// Waits for all inits that were left, and until what they made is closed. False: not all have ended in time. Throws Error if
// interrupted.
bool wait_for_detached_inits(Nanoseconds until);

class DedicatedThread final : public Backend {
 public:
  ~DedicatedThread() override;
  // What enforces `thread = "dedicated"` for a class that declares it.
  static BackendPtr around(const Plan& plan, const Init& init);

  Worker* own_worker() noexcept override { return worker_.get(); }
  Backend& on_own_thread() noexcept override { return *inner_; }

 private:
  void init_(Init& init) override;
  void forward_(Batch batch) override;
  void forward_with_dep_(Batch batch, Backend& dependency) override;
  void inject_dependency_(const BackendPtr& dependency) override;
  Range range_() const override { return inner_->range(); }
  void start(const Plan& plan, const Init& init);

  std::shared_ptr<PipeContext> context_;
  std::unique_ptr<Worker> worker_;
  BackendPtr inner_;  // touched on the worker's thread only, but for range()
  std::string name_;
  bool detached_ = false;  // its init goes on
};

}  // namespace hami
