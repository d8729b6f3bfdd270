// The hooks around blocking.
#include "sync/blocking.hpp"

#include <new>
#include <utility>

namespace hami {
namespace {
BlockingHooks active_hooks;

// One interrupt for each thread. Without a destructor: the C library allocates for the destructors of a thread's objects when
// the thread first uses them, and ends the process when out of memory.
thread_local bool has_interrupt = false;
alignas(Interrupted) thread_local unsigned char interrupt_storage[sizeof(Interrupted)];

// store_interrupt has constructed one in the storage if `has_interrupt`.
Interrupted& stored_interrupt() noexcept { return *std::launder(reinterpret_cast<Interrupted*>(interrupt_storage)); }

thread_local bool uninterruptible = false;
}  // namespace

BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept { return std::exchange(active_hooks, hooks); }

bool may_be_interrupted() noexcept { return !uninterruptible && active_hooks.may_be_interrupted(); }

void check_interrupt() {
  if (may_be_interrupted()) active_hooks.check_interrupt();
}

UninterruptibleScope::UninterruptibleScope() noexcept : outer_(std::exchange(uninterruptible, true)) {}
UninterruptibleScope::~UninterruptibleScope() { uninterruptible = outer_; }

bool attach_thread() noexcept { return active_hooks.attach_thread(); }
void detach_thread() noexcept { active_hooks.detach_thread(); }

void store_interrupt(const Error& error) noexcept {
  take_stored_interrupt();
  new (interrupt_storage) Interrupted(error);
  has_interrupt = true;
}

std::optional<Interrupted> take_stored_interrupt() noexcept {
  if (!std::exchange(has_interrupt, false)) return std::nullopt;
  std::optional<Interrupted> taken(std::move(stored_interrupt()));
  stored_interrupt().~Interrupted();
  return taken;
}

void GilPreacquire::acquire() noexcept {
  active_hooks.preacquire();
  acquired_ = true;
}

void GilPreacquire::consume() noexcept {
  if (acquired_) active_hooks.begin_batch();
}

void GilPreacquire::release() noexcept {
  if (!acquired_) return;
  acquired_ = false;
  active_hooks.release_preacquired();
}

GlobalLock::GlobalLock(const std::string& label, bool needed) : token_(nullptr) {
  if (!needed) return;
  if (!active_hooks.hold)
    throw Error(ErrorCode::kPlugin, label + " needs Python's GIL, but this process has no Python interpreter");
  token_ = active_hooks.hold(label);
}
GlobalLock::~GlobalLock() {
  if (token_) active_hooks.release_held(token_);
}

CompletionBatch::CompletionBatch() noexcept { active_hooks.begin_completion_batch(storage_); }
CompletionBatch::~CompletionBatch() { active_hooks.end_completion_batch(storage_); }

BlockingScope::BlockingScope() noexcept : token_(active_hooks.leave()) {}
BlockingScope::~BlockingScope() { active_hooks.enter(token_); }

}  // namespace hami
