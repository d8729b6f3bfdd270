// The hooks around waiting.
#include "base/blocking.hpp"

namespace hami {
namespace {
BlockingHooks hooks_in_force{[]() noexcept -> void* { return nullptr; }, [](void*) noexcept {}, [] {}};
}

void set_blocking_hooks(BlockingHooks hooks) noexcept { hooks_in_force = hooks; }

void check_interrupt() { hooks_in_force.check_interrupt(); }

BlockingScope::BlockingScope() noexcept : token_(hooks_in_force.leave()) {}
BlockingScope::~BlockingScope() { hooks_in_force.enter(token_); }

}  // namespace hami
