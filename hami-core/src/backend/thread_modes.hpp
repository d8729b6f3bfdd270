// Backends that call another one as its class asks for: on a thread of its own, or one call at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "backend/backend.hpp"
#include "backend/pipe_context.hpp"
#include "request/api.hpp"

namespace hami {

// DedicatedThread: initialises, runs and closes a backend on one thread of its own. An init on such a thread can be detached,
// by Ctrl-C or when its time is over: it continues, and the backend that it builds is closed when it ends.
// Waits until all detached inits have ended and their backends are closed. False: not all ended in time. Throws Error if
// interrupted.
bool wait_for_detached_inits(Nanoseconds until);

using BackendFactory = std::function<BackendPtr()>;

// Builds a backend on a temporary thread, for as long as `until`. Throws the Error of the init; or `expired` or that of an
// interrupt: the init then continues, detached. `label` is for messages.
BackendPtr build_until(Nanoseconds until, const Error& expired, const std::string& label, PipeContext& context,
                       BackendFactory build);

class DedicatedThread final : public Backend {
 public:
  // Starts the thread and builds the backend there; returns when it is initialised. Throws the Error of the init, or of an
  // interrupt: the init then continues, detached, and what it builds is closed when it ends. `label` and `node` are for
  // messages.
  DedicatedThread(const std::string& label, const std::string& node, std::shared_ptr<PipeContext> context,
                  BackendFactory build);
  ~DedicatedThread() override;

  Worker* own_worker() noexcept override { return &worker_; }
  Backend& on_own_thread() noexcept override { return inner(); }

 private:
  void forward_(Batch batch) override;
  void forward_with_dep_(Batch batch, Backend& dependency) override;
  void inject_dependency_(const BackendPtr& dependency) override;
  Range range_() const override { return inner().range(); }
  CostFunction request_cost_() const override { return inner().request_cost(); }
  Backend& inner() const noexcept { return **inner_; }
  void stop_worker() noexcept;

  const std::shared_ptr<PipeContext> context_;
  const std::string name_;
  const std::shared_ptr<BackendPtr> inner_;  // used and closed on the worker's thread; range() is called on any thread
  Worker worker_;
};

// SerializedBackend: wraps a backend of a class with `thread = "serialized"` and runs one call at a time.
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
  CostFunction request_cost_() const override { return inner_->request_cost(); }

  const BackendPtr inner_;
  Mutex mutex_;  // held for the duration of a call
  std::atomic<std::thread::id> holder_{};
};

}  // namespace hami
