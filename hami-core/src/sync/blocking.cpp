// The hooks around blocking.
#include "sync/blocking.hpp"

#include <utility>

namespace hami {
namespace {
BlockingHooks active_hooks;
thread_local std::optional<Interrupted> stored_interrupt;
thread_local bool uninterruptible = false;
}  // namespace

BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept { return std::exchange(active_hooks, hooks); }

bool may_be_interrupted() noexcept { return !uninterruptible && active_hooks.may_be_interrupted(); }

void check_interrupt() {
  if (may_be_interrupted()) active_hooks.check_interrupt();
}

UninterruptibleScope::UninterruptibleScope() noexcept : outer_(std::exchange(uninterruptible, true)) {}
UninterruptibleScope::~UninterruptibleScope() { uninterruptible = outer_; }

void store_interrupt(const Error& error) { stored_interrupt.emplace(error); }

std::optional<Interrupted> take_stored_interrupt() noexcept { return std::exchange(stored_interrupt, std::nullopt); }

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

CompletionBatch::CompletionBatch() noexcept : token_(active_hooks.begin_completion_batch()) {}
CompletionBatch::~CompletionBatch() { active_hooks.end_completion_batch(token_); }

BlockingScope::BlockingScope() noexcept : token_(active_hooks.leave()) {}
BlockingScope::~BlockingScope() { active_hooks.enter(token_); }

}  // namespace hami
