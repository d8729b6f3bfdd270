#include "mailbox.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstring>

namespace hami_process {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t now() noexcept {
  timespec moment{};
  clock_gettime(CLOCK_MONOTONIC, &moment);
  return moment.tv_sec * kSecond + moment.tv_nsec;
}

// Not FUTEX_PRIVATE_FLAG: the word is shared between processes.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) noexcept {
  // lock-free, so it has the layout of its value
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

Outcome wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::int64_t timeout) noexcept {
  const std::int64_t until = now() + timeout;
  while (word.load(std::memory_order_acquire) == seen) {
    const std::int64_t left = until - now();
    if (left <= 0) return kTimeout;
    const timespec wait{static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    if (futex(word, FUTEX_WAIT, seen, &wait) != 0 && errno == EINTR) return kInterrupted;
  }
  return kDone;
}

void wake_all(std::atomic<std::uint32_t>& word) noexcept { futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

Outcome Mailbox::put(void* room, const void* message, std::uint32_t bytes, std::int64_t timeout) noexcept {
  for (;;) {
    const std::uint32_t seen = state.load(std::memory_order_acquire);
    if (seen & kClosedBit) return kClosed;
    if (seen == kEmpty) break;
    if (const Outcome ended = wait_for_change(state, seen, timeout); ended != kDone) return ended;
  }
  std::memcpy(room, message, bytes);
  size = bytes;
  std::uint32_t expected = kEmpty;
  if (!state.compare_exchange_strong(expected, kFull, std::memory_order_release)) return kClosed;
  wake_all(state);
  return kDone;
}

std::int32_t Mailbox::take(const void* room, void* message, std::uint32_t capacity, std::int64_t timeout) noexcept {
  for (;;) {
    const std::uint32_t seen = state.load(std::memory_order_acquire);
    if (seen & kFull) break;
    if (seen & kClosedBit) return kClosed;
    if (const Outcome ended = wait_for_change(state, seen, timeout); ended != kDone) return ended;
  }
  const std::uint32_t bytes = size < capacity ? size : capacity;  // the other process may be damaged
  std::memcpy(message, room, bytes);
  state.fetch_and(~kFull, std::memory_order_release);
  wake_all(state);
  return static_cast<std::int32_t>(bytes);
}

void Mailbox::close() noexcept {
  state.fetch_or(kClosedBit, std::memory_order_acq_rel);
  wake_all(state);
}

}  // namespace hami_process
