// Timer: one thread, asleep until the next deadline.
#include "pipe/timer.hpp"

#include <vector>

namespace hami {

Timer::~Timer() { stop(); }

void Timer::add(Nanoseconds moment, Ref<Call> call) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  calls_.emplace(moment, std::move(call));
  if (!worker_) {
    worker_ = std::make_unique<Worker>("hami-timer");
    worker_->post([this] { loop(); });
  }
  changed_.notify_all();
}

void Timer::stop() noexcept {
  std::unique_ptr<Worker> worker;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    worker = std::move(worker_);
  }
  worker = nullptr;  // joins
  calls_.clear();
}

void Timer::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (calls_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Nanoseconds next = calls_.begin()->first;
    const Nanoseconds moment = now();
    if (next > moment) {
      changed_.wait_until(lock, to_time_point(next));
      continue;
    }
    Ref<Call> call = std::move(calls_.begin()->second);
    calls_.erase(calls_.begin());
    lock.unlock();
    const Nanoseconds later = call->expire(moment);
    lock.lock();
    if (later != kNever && !stopping_) calls_.emplace(later, std::move(call));
  }
}

}  // namespace hami
