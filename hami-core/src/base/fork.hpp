// Detects forks: the child of a fork has none of the parent's threads.
#pragma once

namespace hami {

// Increases by one in the child of each fork.
unsigned fork_generation() noexcept;

}  // namespace hami
