// Ring: the events of one thread. The thread fills it, and the recorder of the trace empties it, both without a lock. A full
// ring drops new events and counts them. The end of a slice always has a place: slices are never left open by a full ring.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "observe/trace.hpp"

namespace hami::trace {

struct Thread {
  int id = 0;
  std::string name;
};

class Ring {
 public:
  static constexpr std::size_t kEvents = 1 << 13;

  explicit Ring(unsigned generation) : generation_(generation), thread_{static_cast<int>(syscall(SYS_gettid)), {}} {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    thread_.name = name;
  }

  // For the thread. `reserved`: places that must stay free behind the event.
  bool push(const Event& event, std::uint32_t session, std::size_t reserved) noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head + reserved >= known_tail_ + kEvents) {
      known_tail_ = tail_.load(std::memory_order_acquire);
      if (head + reserved >= known_tail_ + kEvents) {
        lost_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
    }
    slots_[head % kEvents] = {event, session};
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  // Events beside the ends of slices: each open slice has a place for its end.
  bool push(const Event& event, std::uint32_t session) noexcept { return push(event, session, open_); }
  bool open(const Event& event, std::uint32_t session) noexcept {
    if (!push(event, session, open_ + 1)) return false;
    ++open_;
    return true;
  }
  void close(const Event& event, std::uint32_t session) noexcept {
    if (open_ == 0) return;  // it was opened by another thread, or before a fork
    --open_;
    push(event, session, 0);
  }
  bool has_open_slice() const noexcept { return open_ > 0; }
  void end() noexcept { ended_.store(true, std::memory_order_release); }
  unsigned generation() const noexcept { return generation_; }

  // For the recorder. Events of earlier sessions are skipped.
  template <class Use>
  void drain(std::uint32_t session, const Use& use) {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (; tail < head; ++tail) {
      const Slot& slot = slots_[tail % kEvents];
      if (slot.session == session) use(slot.event);
    }
    tail_.store(tail, std::memory_order_release);
  }
  std::uint64_t take_lost() noexcept { return lost_.exchange(0, std::memory_order_relaxed); }
  // Ask before the last drain.
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  const Thread& thread() const noexcept { return thread_; }
  std::optional<std::size_t> index;  // of the thread in the trace

 private:
  struct Slot {
    Event event;
    std::uint32_t session;
  };

  const unsigned generation_;
  Thread thread_;
  std::uint64_t known_tail_ = 0;
  std::size_t open_ = 0;
  std::unique_ptr<Slot[]> slots_{new Slot[kEvents]};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> ended_{false};
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

// The rings of all threads of this process that have recorded something.
std::vector<std::shared_ptr<Ring>> rings();
// Of a thread that has ended.
void remove_ring(const std::shared_ptr<Ring>& ring) noexcept;
// The number of a new session, to which the events of all threads belong from now on.
std::uint32_t begin_session() noexcept;
// Whether threads record.
inline void set_active(bool active) noexcept { detail::active = active; }

}  // namespace hami::trace
