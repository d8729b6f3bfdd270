// Mutex, MutexLock and CondVar: the standard ones with thread-safety annotations, which libstdc++ lacks.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.hpp"

// Clang's thread-safety attributes: `clang++ -Wthread-safety` proves that guarded members are used under their mutex.
#if defined(__clang__)
#define HAMI_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define HAMI_THREAD_ATTRIBUTE(attribute)
#endif

#define HAMI_CAPABILITY(name) HAMI_THREAD_ATTRIBUTE(capability(name))
#define HAMI_SCOPED_CAPABILITY HAMI_THREAD_ATTRIBUTE(scoped_lockable)
#define HAMI_GUARDED_BY(mutex) HAMI_THREAD_ATTRIBUTE(guarded_by(mutex))
#define HAMI_ACQUIRE(...) HAMI_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define HAMI_RELEASE(...) HAMI_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define HAMI_TRY_ACQUIRE(...) HAMI_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define HAMI_REQUIRES(...) HAMI_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HAMI_ASSERT_HELD(...) HAMI_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
#define HAMI_NO_THREAD_SAFETY_ANALYSIS HAMI_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace hami {

// Mutex, MutexLock and CondVar: the standard ones with thread-safety annotations, which libstdc++ lacks.
class HAMI_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() HAMI_ACQUIRE() { mutex_.lock(); }
  void unlock() HAMI_RELEASE() { mutex_.unlock(); }
  bool try_lock() HAMI_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Inside a lambda that runs under the mutex: tells the analysis so, which does not look into callers.
  void assert_held() const HAMI_ASSERT_HELD() {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex for its scope; may be released and taken again in between.
class HAMI_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HAMI_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() HAMI_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() HAMI_ACQUIRE() { lock_.lock(); }
  void unlock() HAMI_RELEASE() { lock_.unlock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// A predicate runs under the mutex; it starts with `mutex.assert_held()` where it reads guarded members.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

  void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  template <class Ready>
  void wait(MutexLock& lock, Ready ready) {
    changed_.wait(lock.lock_, ready);
  }
  // May return early, without a notification.
  void wait_until(MutexLock& lock, Nanoseconds moment) {
    const std::chrono::nanoseconds until(std::min(moment, now() + kLongestWait));
    changed_.wait_until(lock.lock_, std::chrono::steady_clock::time_point(until));
  }
  // False: `ready` was not true at `moment`.
  template <class Ready>
  bool wait_until(MutexLock& lock, Nanoseconds moment, Ready ready) {
    while (!ready()) {
      if (now() >= moment) return false;
      wait_until(lock, moment);
    }
    return true;
  }

 private:
  // One hour: C++ libraries convert to other clocks and overflow beyond that.
  static constexpr Nanoseconds kLongestWait = 3'600'000'000'000;

  std::condition_variable changed_;
};

}  // namespace hami
