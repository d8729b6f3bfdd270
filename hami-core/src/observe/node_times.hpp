// NodeTimes: how long requests, batches and backends of one node take, and which threads run them now.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "base/api.hpp"
#include "observe/histogram.hpp"
#include "observe/node_stats.hpp"

namespace hami {

// RunningThreads: which threads run something now. Threads enter and leave without a lock; any thread reads.
class RunningThreads {
 public:
  struct Place {
    std::atomic<int> thread{0};  // the number that the system gives it; 0: the place is free
    std::atomic<Nanoseconds> since{0};
  };

  // Null: more than kPlaces threads run, and this one is not listed.
  Place* enter(Nanoseconds moment) noexcept {
    const int thread = this_thread();
    for (std::size_t i = 0; i < kPlaces; ++i) {
      Place& place = places_[(static_cast<std::size_t>(thread) + i) % kPlaces];
      int free = 0;
      if (place.thread.load(std::memory_order_relaxed) != 0 ||
          !place.thread.compare_exchange_strong(free, thread, std::memory_order_relaxed))
        continue;
      place.since.store(moment, std::memory_order_relaxed);
      return &place;
    }
    return nullptr;
  }
  static void leave(Place* place) noexcept {
    if (!place) return;
    place->since.store(0, std::memory_order_relaxed);
    place->thread.store(0, std::memory_order_release);
  }
  // Lists the thread during its scope.
  class Scope {
   public:
    Scope(RunningThreads& threads, Nanoseconds moment) noexcept : place_(threads.enter(moment)) {}
    ~Scope() { leave(place_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Place* const place_;
  };
  // Calls visit(thread, since).
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Place& place : places_) {
      const int thread = place.thread.load(std::memory_order_acquire);
      const Nanoseconds since = place.since.load(std::memory_order_relaxed);
      if (thread != 0 && since != 0) visit(thread, since);
    }
  }

 private:
  static constexpr std::size_t kPlaces = 32;  // more than the instances of most nodes; 512 bytes each

  // Asks the system once for each thread, and again in the child of a fork.
  static int this_thread() noexcept {
    struct Known {
      unsigned generation;
      int thread;
    };
    static thread_local Known known{0, 0};
    const unsigned generation = fork_generation();
    if (known.thread == 0 || known.generation != generation)
      known = {generation, static_cast<int>(syscall(SYS_gettid))};
    return known.thread;
  }

  std::array<Place, kPlaces> places_;
};

// BackendTimes: how long each backend of a node runs, summed over the instances of the node.
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

// TimeRange: how long a batch takes, or what follows it, in nanoseconds.
struct TimeRange {
  double least = 0;  // as fast as the fastest recent ones
  double usual = 0;  // the mean
  double most = 0;   // hardly any takes longer
};

// LearnedTime: a time in the future as far as it is known. 0: it is not.
struct LearnedTime {
  double certain = 0;  // the least time, from runs that may reject requests now
  TimeRange range;
};

// The learned time of one node, for the nodes before it. Its instances write, those of other nodes read.
class SharedTime {
 public:
  struct Estimate {
    LearnedTime time;
    Nanoseconds certain_until = 0, range_until = 0;  // how long it counts, unless a further batch runs
  };
  void set(const Estimate& estimate) noexcept {
    MutexLock lock(mutex_);
    estimate_ = estimate;
  }
  LearnedTime at(Nanoseconds moment) const noexcept {
    MutexLock lock(mutex_);
    LearnedTime time = estimate_.time;
    if (moment > estimate_.certain_until) time.certain = 0;
    if (moment > estimate_.range_until) time.range = {};
    return time;
  }

 private:
  mutable Mutex mutex_;
  Estimate estimate_ HAMI_GUARDED_BY(mutex_);
};

// How long requests wait and run at one node, and how large its batches are. Its instances write, any thread reads.
// Of each request that ran, in ns.
struct RequestTimes {
  Histogram queue;    // from its arrival in the queue until its batch started; inline: 0
  Histogram latency;  // from its arrival until the end of its batch
};

struct NodeTimes : RequestTimes {
  RequestTimes lanes[kNormalLane];  // of the urgent and the high requests; the others are normal
  Histogram batch;                  // of each batch: ns from its start until its end
  Histogram batch_items;            // of each batch
  RunningThreads threads;           // that run a batch now
  SharedTime learned;               // of a batch, in a graph of several nodes
  BackendTimes backends;
};

}  // namespace hami
