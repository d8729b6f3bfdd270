// Around a backend of a class with `thread = "serialized"`: one call at a time, from wherever it is reached.
#pragma once

#include <atomic>
#include <thread>

#include "backend/backend.hpp"
#include "base/mutex.hpp"

namespace hami {

// A node gives each of its instances one batch at a time and never waits here. But the instance has a name that others may
// forward to, hooks run on the threads of callers, and an entrypoint runs on as many threads as call the pipe.
class SerializedBackend final : public Backend {
 public:
  explicit SerializedBackend(BackendPtr inner) : inner_(std::move(inner)) { describe(inner_->label(), inner_->traits()); }

 private:
  class CallScope;

  void forward_(Batch batch) override;
  void forward_with_dep_(Batch batch, Backend& dependency) override;
  void inject_dependency_(const BackendPtr& dependency) override { inner_->inject_dependency(dependency); }
  Range range_() const override { return inner_->range(); }

  const BackendPtr inner_;
  Mutex mutex_;  // held for the time of a call
  std::atomic<std::thread::id> holder_{};
};

}  // namespace hami
