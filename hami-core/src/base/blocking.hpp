// Every wait of the core passes here, so that a language with a global lock can let it go for the time of the wait.
#pragma once

namespace hami {

struct BlockingHooks {
  void* (*leave)() noexcept;              // about to wait; the token goes to `enter`
  void (*enter)(void* token) noexcept;
  bool (*may_be_interrupted)() noexcept;  // whether the user can want the calling thread back (Ctrl-C)
  void (*check_interrupt)();              // throws Error if so
};

// Set once, before the first pipe. Without hooks nothing is done.
void set_blocking_hooks(BlockingHooks hooks) noexcept;

// Waits that can be given up are, by threads that may be interrupted, asked every 50 ms or so.
bool may_be_interrupted() noexcept;
void check_interrupt();

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
