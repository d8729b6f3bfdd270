// Mailbox: one message at a time from one process to another, in memory that both have mapped. Waits need no GIL.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hami_process {

// What a wait ended with. Python knows the numbers: native.py.
enum Outcome : std::int32_t { kDone = 0, kTimeout = -1, kClosed = -2, kInterrupted = -3 };

// Waits until the word differs from `seen`, or `timeout` nanoseconds have passed; kInterrupted: a signal came.
Outcome wait_for_change(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::int64_t timeout) noexcept;
void wake_all(std::atomic<std::uint32_t>& word) noexcept;

// Lies at the start of shared memory, the bytes of the message elsewhere. One process puts, the other takes.
//
//   empty ──put──> full ──take──> empty        each may become closed, and a closed one stays so
struct Mailbox {
  static constexpr std::uint32_t kEmpty = 0;
  static constexpr std::uint32_t kFull = 1;
  static constexpr std::uint32_t kClosedBit = 2;

  std::atomic<std::uint32_t> state;
  std::uint32_t size;

  // Waits until the mailbox is empty, and puts a message.
  Outcome put(void* room, const void* message, std::uint32_t size, std::int64_t timeout) noexcept;
  // Waits for a message, copies it and empties the mailbox. Returns its size, or an Outcome below 0. A message that was put before
  // the mailbox was closed is still taken.
  std::int32_t take(const void* room, void* message, std::uint32_t capacity, std::int64_t timeout) noexcept;
  void close() noexcept;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4,
              "the word of a futex is the atomic itself");

}  // namespace hami_process
