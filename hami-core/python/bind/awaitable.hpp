// hami._core.Awaitable: what a task awaits of one request.
#pragma once

#include "gil.hpp"
#include "pipe/call.hpp"

namespace hami::bind {

// An open one, for a task of that event loop.
py::object make_awaitable(py::handle loop);
// Has it give up the call where its task is cancelled.
void set_call(py::handle awaitable, Call& call) noexcept;
// Leaves the outcome there, an exception or None; on any thread.
void set_outcome(py::handle awaitable, py::handle error) noexcept;
// Takes it, in the thread of the loop: while no task runs, or before the answer's own waits. Python has it as answer.settle().
void settle(py::handle awaitable);

void register_awaitable(py::module_& module);

}  // namespace hami::bind
