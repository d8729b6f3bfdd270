// SerializedBackend: wraps a backend of a class with `thread = "serialized"` and runs one call at a time.
#pragma once

#include <atomic>
#include <thread>

#include "backend/backend.hpp"
#include "base/mutex.hpp"

namespace hami {

// A node gives each instance one batch at a time and never waits here. Other calls reach the backend too: forwards to the
// instance by name, hooks on callers' threads, and an entrypoint, which runs on every thread that calls the pipe.
class SerializedBackend final : public Backend {
 public:
  explicit SerializedBackend(BackendPtr inner) : inner_(std::move(inner)) {
    describe(inner_->label(), inner_->traits());
  }

 private:
  class CallScope;

  void forward_(Batch batch) override;
  void forward_with_dep_(Batch batch, Backend& dependency) override;
  void inject_dependency_(const BackendPtr& dependency) override { inner_->inject_dependency(dependency); }
  Range range_() const override { return inner_->range(); }

  const BackendPtr inner_;
  Mutex mutex_;  // held for the duration of a call
  std::atomic<std::thread::id> holder_{};
};

}  // namespace hami
