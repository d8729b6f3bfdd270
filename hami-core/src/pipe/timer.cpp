// Timer: one thread that sleeps until the next deadline.
#include "pipe/timer.hpp"

#include "sync/waiting.hpp"

namespace hami {

Timer::~Timer() { stop(); }

void Timer::add(Nanoseconds moment, Call& call) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  if (!worker_) {
    auto worker = std::make_unique<Worker>("hami-timer", owner_);
    worker->post([this] { loop(); });
    worker_ = std::move(worker);
  }
  const auto place = calls_.emplace(moment, &call).first;
  if (place == calls_.begin()) changed_.notify_all();  // otherwise the thread wakes in time
}

void Timer::remove(Nanoseconds moment, Call& call) noexcept {
  MutexLock lock(mutex_);
  calls_.erase({moment, &call});
}

void Timer::stop() noexcept {
  std::unique_ptr<Worker> worker;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    worker = std::move(worker_);
  }
  worker = nullptr;  // joins
}

void Timer::loop() {
  const NoWaitScope prompt;
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (calls_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Nanoseconds next = calls_.begin()->first;
    const Nanoseconds moment = now();
    if (next > moment) {
      changed_.wait_until(lock, next);
      continue;
    }
    Ref<Call> call(calls_.begin()->second);
    calls_.erase(calls_.begin());
    lock.unlock();
    call->expire(moment);
    call = {};  // possibly the last reference
    lock.lock();
  }
}

}  // namespace hami
