// Workers for jobs that wait themselves: as many as are needed at once, up to a limit; then the jobs queue.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sync/worker.hpp"
#include "base/mutex.hpp"

namespace hami {

class WorkerPool {
 public:
  WorkerPool(std::string name, std::size_t limit) : name_(std::move(name)), limit_(limit) {}

  // Jobs must not throw. Error(kPipeClosed) once the pool is stopped. False: all are at work, and the job has to wait.
  bool post(std::function<void()> job);
  bool stop(Nanoseconds until);  // as Worker::stop, for each
  bool owns_this_thread();
  // True inside a job of any pool: others may wait for this thread to be free.
  static bool on_some_pool() noexcept;

 private:
  void work(Worker& worker, std::function<void()> job);

  const std::string name_;
  const std::size_t limit_;
  Mutex mutex_;
  bool stopping_ HAMI_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Worker>> workers_ HAMI_GUARDED_BY(mutex_);
  std::vector<Worker*> idle_ HAMI_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> waiting_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
