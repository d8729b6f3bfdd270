// Worker: a thread with a queue of jobs. The only place where the core starts threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"

namespace hami {

class Worker {
 public:
  // Debuggers show the first 15 bytes of `name`. `at_end` runs on the thread after the last job; it must not throw.
  // Error(kOutOfMemory) if the system provides no thread: there is no memory for one, or the limit on threads is reached.
  explicit Worker(const std::string& name, std::function<void()> at_end = {});
  ~Worker();  // stop(kNever)
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Queues a job. Jobs must not throw.
  void post(std::function<void()> job);
  // Runs a job on the worker and waits for it; an exception of the job is thrown here as an Error. On the worker's own
  // thread the job runs at once.
  void run(const std::function<void()>& job);
  bool is_current() const noexcept;
  // True on the thread of any worker: code that joins workers must not run there.
  static bool on_some_worker() noexcept;

  // Runs the queued jobs and joins the thread. False: the thread did not end in time and is abandoned; its job must own all
  // that it still uses.
  bool stop(Nanoseconds until);
  bool stopped() const noexcept { return state_ == nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hami
