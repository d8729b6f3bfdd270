// hami._core.Awaitable: the object that an asyncio task awaits for one request.
#pragma once

#include "gil.hpp"
#include "pipe/api.hpp"

namespace hami::bind {

// Returns a pending awaitable for a task of the event loop `loop`.
py::object make_awaitable(py::handle loop);
// Attaches the call that `abandon` cancels.
void set_call(py::handle awaitable, Call& call) noexcept;
// Stores the outcome, an exception or None. Any thread that holds the GIL may call it.
void set_outcome(py::handle awaitable, py::handle error) noexcept;
// Applies the stored outcome and resumes the task. Call it on the loop's thread while no task runs, or before the task
// awaits.
void settle(py::handle awaitable);
// The same for a request that completed while its task started it. The task continues at once, but after kLoopShare it
// waits for one pass of the loop: a task that awaits request after request must not keep the loop from other tasks.
void settle_inline(py::handle awaitable);

[[gnu::cold]] void register_awaitable(py::module_& module);

}  // namespace hami::bind
