// Worker and WorkerPool: the threads of the core.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "value/api.hpp"

namespace hami {

// Worker: a thread with a queue of jobs. The only place where the core starts threads that run jobs.
// For which owners the current thread works, innermost first: it must not wait for their end. On the stack of a thread while it
// does their work; a thread that waits for a job of a worker lends its scopes to the worker.
class WorkScope {
 public:
  explicit WorkScope(const void* owner) noexcept : WorkScope(owner, innermost_) {}
  ~WorkScope() { innermost_ = before_; }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

  static bool inside(const void* owner) noexcept {
    for (const WorkScope* scope = innermost_; scope; scope = scope->outer_)
      if (scope->owner_ == owner) return true;
    return false;
  }

 private:
  friend class Worker;
  WorkScope(const void* owner, const WorkScope* outer) noexcept
      : owner_(owner), outer_(outer), before_(std::exchange(innermost_, this)) {}

  const void* const owner_;
  const WorkScope* const outer_;
  const WorkScope* const before_;
  static thread_local const WorkScope* innermost_;
};

class Worker {
 public:
  // Debuggers show the first 15 bytes of `name`. `owner`: for whom the thread works (WorkScope). `at_end` runs on the thread after
  // the last job; it must not throw.
  // Error(kOutOfMemory) if the system provides no thread: memory is exhausted, or the limit on threads is reached.
  explicit Worker(const std::string& name, const void* owner = nullptr, std::function<void()> at_end = {});
  ~Worker();  // as stop(kNever), without interrupts
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

  // Runs the queued jobs and joins the thread; further calls return true. False: the thread did not end in time and is
  // abandoned; its job must own all that it still uses. Throws Error if interrupted: then it may be called again.
  bool stop(Nanoseconds until);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// WorkerPool: workers for jobs that block. It starts a worker for each concurrent job, up to a limit; further jobs queue.
class WorkerPool {
 public:
  // `owner`: for whom the workers work (WorkScope).
  WorkerPool(std::string name, std::size_t limit, const void* owner = nullptr)
      : name_(std::move(name)), limit_(limit), owner_(owner) {}

  // Jobs must not throw. Error(kPipeClosed) once the pool is stopped. False: all workers are busy and the job is queued.
  bool post(std::function<void()> job);
  bool stop(Nanoseconds until);  // Worker::stop for each
  bool is_quiet();               // no job runs or waits
  // True inside a job of any pool: other jobs may be queued for this thread.
  static bool on_some_pool() noexcept;

 private:
  void work(Worker& worker, std::function<void()> job);
  void add_worker() HAMI_REQUIRES(mutex_);
  Worker& worker(std::size_t index);

  const std::string name_;
  const std::size_t limit_;
  const void* const owner_;
  Mutex mutex_;
  bool stopping_ HAMI_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Worker>> workers_ HAMI_GUARDED_BY(mutex_);
  std::vector<Worker*> idle_ HAMI_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> waiting_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
