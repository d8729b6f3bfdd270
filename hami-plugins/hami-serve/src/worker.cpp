// The thread of a worker.
#include "worker.hpp"

#include <utility>

namespace hami_serve {

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::add(std::unique_ptr<Task> work) noexcept {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push(std::move(work));
  }
  changed_.notify_one();
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    std::unique_ptr<Task> work = waiting_.pop();
    lock.unlock();
    work->run();
    work = nullptr;  // what it has ends here too
    lock.lock();
  }
}

}  // namespace hami_serve
