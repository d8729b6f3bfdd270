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
  if (stopping_) throw Error(ErrorCode::kPipeClosed, "the pipe is closed");
  Worker* worker = nullptr;
  if (!idle_.empty()) {
    worker = idle_.back();
    idle_.pop_back();
  } else if (workers_.size() < limit_) {
    workers_.push_back(std::make_unique<Worker>(name_, owner_));
    worker = workers_.back().get();
  } else {
    waiting_.push_back(std::move(job));
    return false;
  }
  worker->post([this, worker, job = std::move(job)]() mutable { work(*worker, std::move(job)); });
  return true;
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
  std::vector<Worker*> workers;
  {
    MutexLock lock(mutex_);
    stopping_ = true;  // no worker is added or removed from here on
    for (const auto& worker : workers_) workers.push_back(worker.get());
  }
  bool stopped = true;
  for (Worker* worker : workers) stopped = worker->stop(until) && stopped;
  return stopped;
}

}  // namespace hami
