// Ends a child process when its parent ends, even if the child is stuck in a call.
#pragma once

#include <cstdint>

namespace hami_process {

// Lets the kernel kill this process with its parent, and starts a thread that does the same when the other end of `socket` is
// closed. Returns false if the parent has ended already.
bool end_with_parent(std::int32_t parent, std::int32_t socket) noexcept;

}  // namespace hami_process
