// Whether this process is a fork of the one where something was made: its threads are then gone.
#pragma once

namespace hami {

// Grows by one in the child of each fork.
unsigned fork_generation() noexcept;

}  // namespace hami
