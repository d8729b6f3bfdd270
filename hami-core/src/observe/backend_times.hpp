// BackendTimes: how long each backend of a node runs, summed over the instances of the node.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "observe/running_threads.hpp"

namespace hami {

struct BackendTime {
  explicit BackendTime(std::string backend) : name(std::move(backend)) {}

  const std::string name;
  std::atomic<std::uint64_t> nanoseconds{0};
  RunningThreads threads;
};

// Filled while a pipe is built, read afterwards. Entries never move.
class BackendTimes {
 public:
  // `key` identifies the place of the backend in the node: all instances use the same entry.
  BackendTime& add(const void* key, const std::string& name) {
    MutexLock lock(mutex_);
    if (BackendTime* known = find(key)) return *known;
    keys_.push_back(key);
    return times_.emplace_back(name);
  }
  // Null if there is no entry.
  BackendTime* of(const void* key) {
    MutexLock lock(mutex_);
    return find(key);
  }
  std::size_t size() const {
    MutexLock lock(mutex_);
    return times_.size();
  }
  // In the order in which they were added.
  template <class Visit>
  void for_each(const Visit& visit) const {
    MutexLock lock(mutex_);
    for (const BackendTime& time : times_) visit(time);
  }

 private:
  BackendTime* find(const void* key) HAMI_REQUIRES(mutex_) {
    for (std::size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == key) return &times_[i];
    return nullptr;
  }

  mutable Mutex mutex_;
  std::deque<const void*> keys_ HAMI_GUARDED_BY(mutex_);
  std::deque<BackendTime> times_ HAMI_GUARDED_BY(mutex_);
};

// Adds the time of its scope to an entry, and lists the thread there meanwhile; null: it does nothing.
class BackendTimer {
 public:
  explicit BackendTimer(BackendTime* time) noexcept
      : time_(time), start_(time ? now() : 0), place_(time ? time->threads.enter(start_) : nullptr) {}
  ~BackendTimer() {
    if (!time_) return;
    RunningThreads::leave(place_);
    time_->nanoseconds.fetch_add(static_cast<std::uint64_t>(now() - start_), std::memory_order_relaxed);
  }
  BackendTimer(const BackendTimer&) = delete;
  BackendTimer& operator=(const BackendTimer&) = delete;

 private:
  BackendTime* const time_;
  const Nanoseconds start_;
  RunningThreads::Place* const place_;
};

}  // namespace hami
