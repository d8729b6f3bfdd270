// Every wait of the core passes here, so that a language with a global lock can let it go for the time of the wait.
#pragma once

#include <optional>
#include <string>

#include "value/error.hpp"

namespace hami {

struct BlockingHooks {
  // About to wait; the token goes to `enter`.
  void* (*leave)() noexcept = []() noexcept -> void* { return nullptr; };
  void (*enter)(void* token) noexcept = [](void*) noexcept {};
  // Whether the user can want the calling thread back (Ctrl-C); and throws Error if so.
  bool (*may_be_interrupted)() noexcept = []() noexcept { return false; };
  void (*check_interrupt)() = [] {};
  // Takes the lock for the next batch, says that the batch begins, and lets the lock go if the batch did not take it over.
  void (*preacquire)() noexcept = []() noexcept {};
  void (*begin_batch)() noexcept = []() noexcept {};
  void (*release_preacquired)() noexcept = []() noexcept {};
  // Outcomes are told to callers in the language from now on; the token goes to `end_completion_batch`.
  void* (*begin_completion_batch)() noexcept = []() noexcept -> void* { return nullptr; };
  void (*end_completion_batch)(void* token) noexcept = [](void*) noexcept {};
  // Holds the lock for foreign code of `who`, which lives as long; the token goes to `release_held`. Null: there is no such
  // language.
  void* (*hold)(const std::string& who) = nullptr;
  void (*release_held)(void* token) noexcept = nullptr;
};

// Set once, before the first pipe. Without hooks nothing is done. Returns those that were in force.
BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept;

// If `who` needs it, holds the language's global lock; Error(kPlugin) if there is no such language.
class GlobalLock {
 public:
  GlobalLock(const std::string& who, bool needed);
  ~GlobalLock();
  GlobalLock(const GlobalLock&) = delete;
  GlobalLock& operator=(const GlobalLock&) = delete;

 private:
  void* token_;
};

// Waits that can be given up are, by threads that may be interrupted, asked every 50 ms or so.
bool may_be_interrupted() noexcept;
void check_interrupt();

// The user wants the thread back: this is for who called, and no outcome of a request.
class Interrupted final : public Error {
 public:
  explicit Interrupted(const Error& error) : Error(error) {}
};
// Of a thread that was interrupted where it could not leave; its call throws it once it can. `take` ends the keeping.
void store_interrupt(const Error& error);
std::optional<Interrupted> take_stored_interrupt() noexcept;

// Of a thread that runs one batch after the other in a language with a global lock. Whoever is woken wants that lock, so
// the thread takes it first: the next batch would else begin after everybody who got an answer of the last.
// While it is held nothing is done that waits or takes long.
class GilPreacquire {
 public:
  GilPreacquire() noexcept = default;
  ~GilPreacquire() { release(); }
  GilPreacquire(const GilPreacquire&) = delete;
  GilPreacquire& operator=(const GilPreacquire&) = delete;

  void acquire() noexcept;
  // The next call into the language is that of the batch. Until then nothing that runs here takes the lock over: callers who
  // are told of the last batch may run others.
  void consume() noexcept;
  void release() noexcept;

 private:
  bool acquired_ = false;
};

// The outcomes of a batch, told to callers in the language: its lock is taken once for all of them, not anew for each, when
// everybody who heard of the one before wants it.
class CompletionBatch {
 public:
  CompletionBatch() noexcept;
  ~CompletionBatch();
  CompletionBatch(const CompletionBatch&) = delete;
  CompletionBatch& operator=(const CompletionBatch&) = delete;

 private:
  void* token_;
};

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
