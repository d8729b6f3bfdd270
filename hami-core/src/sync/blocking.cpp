// The hooks around waiting.
#include "sync/blocking.hpp"

#include <utility>

namespace hami {
namespace {
BlockingHooks hooks_in_force;
thread_local std::optional<Interrupted> kept_interrupt;
}  // namespace

BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept { return std::exchange(hooks_in_force, hooks); }

bool may_be_interrupted() noexcept { return hooks_in_force.may_be_interrupted(); }

void check_interrupt() {
  if (may_be_interrupted()) hooks_in_force.check_interrupt();
}

void keep_interrupt(const Error& error) { kept_interrupt.emplace(error); }

std::optional<Interrupted> take_kept_interrupt() noexcept { return std::exchange(kept_interrupt, std::nullopt); }

void LockAhead::take() noexcept {
  hooks_in_force.take_ahead();
  taken_ = true;
}

void LockAhead::hand_over() noexcept {
  if (taken_) hooks_in_force.begin_batch();
}

void LockAhead::let_go() noexcept {
  if (!taken_) return;
  taken_ = false;
  hooks_in_force.let_go();
}

GlobalLock::GlobalLock(const std::string& who, bool needed) : token_(nullptr) {
  if (!needed) return;
  if (!hooks_in_force.hold) throw Error(ErrorCode::kPlugin, who + " needs Python's global lock, and no Python runs here");
  token_ = hooks_in_force.hold(who);
}
GlobalLock::~GlobalLock() {
  if (token_) hooks_in_force.let_held_go(token_);
}

Telling::Telling() noexcept : token_(hooks_in_force.begin_telling()) {}
Telling::~Telling() { hooks_in_force.end_telling(token_); }

BlockingScope::BlockingScope() noexcept : token_(hooks_in_force.leave()) {}
BlockingScope::~BlockingScope() { hooks_in_force.enter(token_); }

}  // namespace hami
