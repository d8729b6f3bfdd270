// WorkerPool: an idle worker, a new one, or the queue.
#include "sync/worker_pool.hpp"

#include "value/error.hpp"

namespace hami {
namespace {
thread_local bool is_pooled = false;
}

bool WorkerPool::on_some_pool() noexcept { return is_pooled; }

bool WorkerPool::post(std::function<void()> job) {
  MutexLock lock(mutex_);
  if (stopping_) throw Error::pipe_closed();
  if (idle_.empty()) {
    if (workers_.size() == limit_) {
      waiting_.push_back(std::move(job));
      return false;
    }
    add_worker();
  }
  Worker* const worker = idle_.back();
  worker->post([this, worker, job = std::move(job)]() mutable { work(*worker, std::move(job)); });
  idle_.pop_back();
  return true;
}

// Afterwards `idle_` has the capacity for all workers.
void WorkerPool::add_worker() {
  workers_.reserve(workers_.size() + 1);
  idle_.reserve(workers_.size() + 1);
  workers_.push_back(std::make_unique<Worker>(name_, owner_));
  idle_.push_back(workers_.back().get());
}

void WorkerPool::work(Worker& worker, std::function<void()> job) {
  is_pooled = true;
  for (;;) {
    job();
    job = nullptr;
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      idle_.push_back(&worker);
      return;
    }
    job = std::move(waiting_.front());
    waiting_.pop_front();
  }
}

bool WorkerPool::is_quiet() {
  MutexLock lock(mutex_);
  return idle_.size() == workers_.size() && waiting_.empty();
}

bool WorkerPool::stop(Nanoseconds until) {
  std::size_t count = 0;
  {
    MutexLock lock(mutex_);
    stopping_ = true;  // no worker is added or removed from here on
    count = workers_.size();
  }
  bool stopped = true;
  for (std::size_t i = 0; i < count; ++i) stopped = worker(i).stop(until) && stopped;
  return stopped;
}

Worker& WorkerPool::worker(std::size_t index) {
  MutexLock lock(mutex_);
  return *workers_[index];
}

}  // namespace hami
