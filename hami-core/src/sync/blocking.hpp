// Blocking scopes and the GIL policy: every wait of the core goes through here, so that a language with a global lock (the
// GIL) can release it for the duration of the wait.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

#include "value/api.hpp"

namespace hami {

// Where the language keeps what it needs while a thread completes a batch: completing requests must not allocate.
using CompletionStorage = std::aligned_storage_t<64, alignof(std::max_align_t)>;

struct BlockingHooks {
  // Called on each thread of the core before its first and after its last job. The first call allocates what the language keeps
  // for a thread, so that later calls do not have to; false: out of memory.
  bool (*attach_thread)() noexcept = []() noexcept { return true; };
  void (*detach_thread)() noexcept = []() noexcept {};
  // Called before and after a wait; `enter` gets the token of `leave`.
  void* (*leave)() noexcept = []() noexcept -> void* { return nullptr; };
  void (*enter)(void* token) noexcept = [](void*) noexcept {};
  // Whether Ctrl-C can interrupt the calling thread; and throws Error if it did.
  bool (*may_be_interrupted)() noexcept = []() noexcept { return false; };
  void (*check_interrupt)() = [] {};
  // Pre-acquires the lock for the next batch; announces that the batch begins, which consumes the pre-acquired lock; and
  // releases the lock if no batch consumed it.
  void (*preacquire)() noexcept = []() noexcept {};
  void (*begin_batch)() noexcept = []() noexcept {};
  void (*release_preacquired)() noexcept = []() noexcept {};
  // Requests of callers in the language are completed between these two.
  void (*begin_completion_batch)(CompletionStorage& storage) noexcept = [](CompletionStorage&) noexcept {};
  void (*end_completion_batch)(CompletionStorage& storage) noexcept = [](CompletionStorage&) noexcept {};
  // Holds the lock while foreign code of the backend `label` runs; `label` must live until `release_held` gets the token.
  // Null: the process has no such language.
  void* (*hold)(const std::string& label) = nullptr;
  void (*release_held)(void* token) noexcept = nullptr;
};

// Call it once, before the first pipe. Returns the previous hooks. The default hooks do nothing.
BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept;

// For threads of the core. False: out of memory for what the language keeps for this thread.
bool attach_thread() noexcept;
void detach_thread() noexcept;

// Holds the global lock of the language if the backend `label` needs it; Error(kPlugin) if there is no such language.
class GlobalLock {
 public:
  GlobalLock(const std::string& label, bool needed);
  ~GlobalLock();
  GlobalLock(const GlobalLock&) = delete;
  GlobalLock& operator=(const GlobalLock&) = delete;

 private:
  void* token_;
};

// A wait on an interruptible thread checks these every 50 ms (kInterruptPoll).
bool may_be_interrupted() noexcept;
void check_interrupt();

// For code that must finish what it waits for: an interrupt stays pending meanwhile.
class UninterruptibleScope {
 public:
  UninterruptibleScope() noexcept;
  ~UninterruptibleScope();
  UninterruptibleScope(const UninterruptibleScope&) = delete;
  UninterruptibleScope& operator=(const UninterruptibleScope&) = delete;

 private:
  const bool outer_;
};

// Ctrl-C: for the caller of the pipe; never the outcome of a request.
class Interrupted final : public Error {
 public:
  explicit Interrupted(const Error& error) noexcept : Error(error) {}
};
// Keeps the interrupt of a thread that was interrupted where it could not leave; the thread's call takes it and throws it.
void store_interrupt(const Error& error) noexcept;
std::optional<Interrupted> take_stored_interrupt() noexcept;

// Acquires the global lock for a thread that runs batch after batch, before it wakes the callers of the last batch. Every
// woken caller wants the lock: without this, the next batch would start after all of them. While the lock is pre-acquired
// the thread must not block or do long work.
class GilPreacquire {
 public:
  GilPreacquire() noexcept = default;
  ~GilPreacquire() { release(); }
  GilPreacquire(const GilPreacquire&) = delete;
  GilPreacquire& operator=(const GilPreacquire&) = delete;

  void acquire() noexcept;
  // The next acquisition of the lock is that of `forward` and consumes the pre-acquired lock; callbacks before it must not.
  void consume() noexcept;
  void release() noexcept;

 private:
  bool acquired_ = false;
};

// Completes the requests of a batch under one acquisition of the global lock instead of one for each request.
class CompletionBatch {
 public:
  CompletionBatch() noexcept;
  ~CompletionBatch();
  CompletionBatch(const CompletionBatch&) = delete;
  CompletionBatch& operator=(const CompletionBatch&) = delete;

 private:
  CompletionStorage storage_;
};

// The calling thread may block: the global lock is released for the scope.
class BlockingScope {
 public:
  BlockingScope() noexcept;
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  void* token_;
};

}  // namespace hami
