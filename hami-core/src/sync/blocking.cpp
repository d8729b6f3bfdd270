// The hooks around waiting.
#include "sync/blocking.hpp"

#include <utility>

namespace hami {
namespace {
BlockingHooks hooks_in_force;
thread_local std::optional<Interrupted> stored_interrupt;
}  // namespace

BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept { return std::exchange(hooks_in_force, hooks); }

bool may_be_interrupted() noexcept { return hooks_in_force.may_be_interrupted(); }

void check_interrupt() {
  if (may_be_interrupted()) hooks_in_force.check_interrupt();
}

void store_interrupt(const Error& error) { stored_interrupt.emplace(error); }

std::optional<Interrupted> take_stored_interrupt() noexcept { return std::exchange(stored_interrupt, std::nullopt); }

void GilPreacquire::acquire() noexcept {
  hooks_in_force.preacquire();
  acquired_ = true;
}

void GilPreacquire::consume() noexcept {
  if (acquired_) hooks_in_force.begin_batch();
}

void GilPreacquire::release() noexcept {
  if (!acquired_) return;
  acquired_ = false;
  hooks_in_force.release_preacquired();
}

GlobalLock::GlobalLock(const std::string& who, bool needed) : token_(nullptr) {
  if (!needed) return;
  if (!hooks_in_force.hold) throw Error(ErrorCode::kPlugin, who + " needs Python's global lock, and no Python runs here");
  token_ = hooks_in_force.hold(who);
}
GlobalLock::~GlobalLock() {
  if (token_) hooks_in_force.release_held(token_);
}

CompletionBatch::CompletionBatch() noexcept : token_(hooks_in_force.begin_completion_batch()) {}
CompletionBatch::~CompletionBatch() { hooks_in_force.end_completion_batch(token_); }

BlockingScope::BlockingScope() noexcept : token_(hooks_in_force.leave()) {}
BlockingScope::~BlockingScope() { hooks_in_force.enter(token_); }

}  // namespace hami
