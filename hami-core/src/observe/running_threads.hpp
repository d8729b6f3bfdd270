// RunningThreads: which threads run something now. Threads enter and leave without a lock; any thread reads.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "base/clock.hpp"
#include "base/fork.hpp"

namespace hami {

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

}  // namespace hami
