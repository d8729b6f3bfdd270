// The hooks around waiting.
#include "base/blocking.hpp"

namespace hami {
namespace {
BlockingHooks hooks_in_force{[]() noexcept -> void* { return nullptr; }, [](void*) noexcept {}, []() noexcept { return false; },
                             [] {}};
}

void set_blocking_hooks(BlockingHooks hooks) noexcept { hooks_in_force = hooks; }

bool may_be_interrupted() noexcept { return hooks_in_force.may_be_interrupted(); }

void check_interrupt() {
  if (may_be_interrupted()) hooks_in_force.check_interrupt();
}

BlockingScope::BlockingScope() noexcept : token_(hooks_in_force.leave()) {}
BlockingScope::~BlockingScope() { hooks_in_force.enter(token_); }

}  // namespace hami
