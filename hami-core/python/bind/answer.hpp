// hami._core.Answer: what a task awaits of one request.
#pragma once

#include "gil.hpp"
#include "pipe/call.hpp"

namespace hami::bind {

// An open one, for a task of that event loop.
py::object make_answer(py::handle loop);
// Has it give up the call where its task is cancelled.
void set_call(py::handle answer, Call& call) noexcept;
// Leaves the outcome there, an exception or None; on any thread.
void bring(py::handle answer, py::handle error) noexcept;
// Takes it, in the thread of the loop: while no task runs, or before the answer's own waits. Python has it as answer.settle().
void settle(py::handle answer);

void register_answer(py::module_& module);

}  // namespace hami::bind
