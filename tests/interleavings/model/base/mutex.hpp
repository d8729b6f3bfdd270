// Mutex and CondVar of a model, in place of the core's: each operation is a step.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>

#include "base/clock.hpp"
#include "explore.hpp"

#define HAMI_CAPABILITY(name)
#define HAMI_SCOPED_CAPABILITY
#define HAMI_GUARDED_BY(mutex)
#define HAMI_ACQUIRE(...)
#define HAMI_RELEASE(...)
#define HAMI_TRY_ACQUIRE(...)
#define HAMI_REQUIRES(...)
#define HAMI_ASSERT_HELD(...)
#define HAMI_NO_THREAD_SAFETY_ANALYSIS

namespace hami {

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    model::step({this}, [this] { return !held_; });
    held_ = true;
  }
  // Not a step: what other threads do before it, they may as well do after the step before it.
  void unlock() { held_ = false; }
  bool try_lock() {
    model::step({this});
    return !std::exchange(held_, true);
  }
  void assert_held() const {
    if (!held_) model::fail("a guarded member is used without its mutex");
  }

 private:
  friend class CondVar;
  bool held_ = false;
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { lock(); }
  ~MutexLock() {
    if (owns_) unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() {
    mutex_.lock();
    owns_ = true;
  }
  void unlock() {
    mutex_.unlock();
    owns_ = false;
  }

 private:
  friend class CondVar;
  Mutex& mutex_;
  bool owns_ = false;
};

// Never wakes a thread without a notification: a lost one is a deadlock.
class CondVar {
 public:
  void notify_one() noexcept {
    model::step({this});
    if (waiting_.empty()) return;
    const auto chosen = waiting_.begin() + static_cast<std::ptrdiff_t>(model::choose(waiting_.size()));
    **chosen = true;
    waiting_.erase(chosen);
  }
  void notify_all() noexcept {
    model::step({this});
    for (const auto& notified : waiting_) *notified = true;
    waiting_.clear();
  }

  void wait(MutexLock& lock) { sleep(lock, kNever); }
  template <class Ready>
  void wait(MutexLock& lock, Ready ready) {
    while (!ready()) wait(lock);
  }
  void wait_until(MutexLock& lock, Nanoseconds moment) { sleep(lock, moment); }
  template <class Ready>
  bool wait_until(MutexLock& lock, Nanoseconds moment, Ready ready) {
    while (!ready()) {
      if (now() >= moment) return false;
      wait_until(lock, moment);
    }
    return true;
  }

 private:
  // With a limit, the thread may also wake at its end, at which the clock then is.
  void sleep(MutexLock& lock, Nanoseconds until) {
    Mutex& mutex = lock.mutex_;
    const bool limited = until != kNever;
    model::step({this});
    mutex.assert_held();
    mutex.held_ = false;
    const auto notified = std::make_shared<bool>(false);
    waiting_.push_back(notified);
    model::step({this, &mutex, limited}, [=, &mutex] { return (*notified || limited) && !mutex.held_; });
    mutex.held_ = true;
    if (*notified) return;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), notified));
    model::time() = std::max(model::time(), until);
  }

  std::deque<std::shared_ptr<bool>> waiting_;
};

}  // namespace hami
