// Every wait of the core passes here, so that a language with a global lock can let it go for the time of the wait.
#pragma once

namespace hami {

struct BlockingHooks {
  void* (*leave)() noexcept;         // about to wait; the token goes to `enter`
  void (*enter)(void* token) noexcept;
  void (*check_interrupt)();         // throws Error if the user wants the calling thread back (Ctrl-C)
};

// Set once, before the first pipe. Without hooks nothing is done.
void set_blocking_hooks(BlockingHooks hooks) noexcept;

// For waits that can be given up, every 50 ms or so.
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
