// Outcomes told to Python one after the other: what need be done once for all of them waits until the last.
#pragma once

#include "gil.hpp"

namespace hami::bind {

// Of the hooks of the core: between them the thread has the global lock.
void begin_telling() noexcept;
void end_telling() noexcept;

// Calls outcomes.wake() when the thread has told what it has to tell: at once, if it is not telling several. With the lock
// held.
void wake_later(py::handle outcomes);
// Calls what waits for that. Before code runs that may wait for somebody whom it would wake.
void wake_now() noexcept;

}  // namespace hami::bind
