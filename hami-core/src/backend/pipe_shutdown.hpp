// How one pipe ends: its services, its deadline for closing, and the backends that were abandoned.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "request/request.hpp"

namespace hami {

// A part of a pipe with threads or waiting requests, which ends when the pipe closes.
class Service {
 public:
  virtual ~Service() = default;
  // Called once, when all backends of the pipe are built. Throws Error if the system provides no thread.
  virtual void start() {}
  // Accepts nothing more and fails queued requests; running ones may finish. Returns at once.
  virtual void stop() noexcept = 0;
  // Waits until running requests finish, and ends its threads. False: they did not finish in time. Throws Error if interrupted:
  // then it may be called again.
  virtual bool join(Nanoseconds until) = 0;
  // The backends that run, for messages.
  virtual std::vector<std::string> running() = 0;

  // For a pipe that closes. True while no thread works here and none will, unless a further request comes or time passes.
  virtual bool is_quiet() = 0;
  // Starts the batch that waits for further requests, because none will come. With `below_min` it fails if it is below the
  // minimum size; without, such a batch waits on. False: it started nothing.
  virtual bool start_waiting(bool /*below_min*/) { return false; }
};

class PipeShutdown {
 public:
  void add_service(std::weak_ptr<Service> service) { services_.push_back(std::move(service)); }
  const std::vector<std::weak_ptr<Service>>& services() const noexcept { return services_; }

  // The parent of requests without a caller; abandoned when the time for the pipe's close is over.
  const Ref<Request>& root_request() const noexcept { return root_request_; }

  // What an init that may be detached keeps alive: the pipe with its plan. Set before the first backend is built.
  std::shared_ptr<void> pipe() const noexcept { return pipe_.lock(); }
  void set_pipe(std::weak_ptr<void> pipe) noexcept { pipe_ = std::move(pipe); }
  // An init continues without its caller: from now on it alone may touch what it shares with its node. `detached_init` is
  // destroyed after everything else of the pipe.
  void detach_init(std::shared_ptr<void> detached_init) noexcept {
    detached_init_ = std::move(detached_init);
    has_detached_init_ = true;
  }
  bool has_detached_init() const noexcept { return has_detached_init_; }

  // How long a close may take unless the caller says otherwise: 10 s.
  static constexpr Nanoseconds kCloseTimeout = 10'000'000'000;
  // When a close must have finished; kNever while the pipe is open. The backends of a pipe that failed to build have
  // kCloseTimeout each.
  Nanoseconds close_until() const noexcept { return opened_ ? close_until_.load() : after(kCloseTimeout); }
  void set_close_until(Nanoseconds until) noexcept { close_until_ = until; }
  void set_opened() noexcept { opened_ = true; }

  // Names of backends that did not finish in time. Without memory for a name it is missing.
  void report_abandoned(const std::string& name) noexcept;
  std::vector<std::string> take_abandoned();

 private:
  std::shared_ptr<void> detached_init_;
  std::atomic<bool> has_detached_init_{false};
  std::vector<std::weak_ptr<Service>> services_;
  std::weak_ptr<void> pipe_;
  std::atomic<bool> opened_{false};
  std::atomic<Nanoseconds> close_until_{kNever};
  const Ref<Request> root_request_ = make_counted<Request>();
  Mutex mutex_;
  std::vector<std::string> abandoned_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
