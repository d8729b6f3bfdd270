// The hooks around waiting.
#include "base/blocking.hpp"

#include <utility>

namespace hami {
namespace {
BlockingHooks hooks_in_force;
}

BlockingHooks set_blocking_hooks(const BlockingHooks& hooks) noexcept { return std::exchange(hooks_in_force, hooks); }

bool may_be_interrupted() noexcept { return hooks_in_force.may_be_interrupted(); }

void check_interrupt() {
  if (may_be_interrupted()) hooks_in_force.check_interrupt();
}

void LockAhead::take() noexcept {
  hooks_in_force.take_ahead();
  taken_ = true;
}

void LockAhead::let_go() noexcept {
  if (!taken_) return;
  taken_ = false;
  hooks_in_force.let_go();
}

BlockingScope::BlockingScope() noexcept : token_(hooks_in_force.leave()) {}
BlockingScope::~BlockingScope() { hooks_in_force.enter(token_); }

}  // namespace hami
