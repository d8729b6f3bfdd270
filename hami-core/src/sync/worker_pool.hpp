// WorkerPool: workers for jobs that block. It starts a worker for each concurrent job, up to a limit; further jobs queue.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "sync/worker.hpp"

namespace hami {

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
