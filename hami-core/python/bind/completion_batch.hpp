// Outcomes told to Python one after the other: what need be done once for all of them waits until the last.
#pragma once

#include "gil.hpp"

namespace hami::bind {

struct Teller;

// Of the hooks of the core: between them the thread has the global lock.
void* begin_completion_batch() noexcept;
void end_completion_batch(void* token) noexcept;

// Runs `tell`, which runs Python, and once more if a signal's handler may have ended it: it does nothing twice.
template <class Tell>
void complete_reliably(const char* what, Tell&& tell) noexcept {
  try {
    return tell();
  } catch (py::error_already_set& raised) {
    try {
      tell();
      if (raise_later(raised)) return;
    } catch (py::error_already_set& again) {
      again.discard_as_unraisable(what);
    }
    raised.discard_as_unraisable(what);
  }
}

// Calls outcomes.wake() when the thread has told what it has to tell: at once, if it is not telling several. With the lock
// held.
void wake_after_batch(py::handle outcomes);

// The scope of code that may wait for whoever is to be woken. What waits for that is woken first, and whom that code tells of
// outcomes at once.
class FlushWakeupsScope {
 public:
  FlushWakeupsScope() noexcept;
  ~FlushWakeupsScope();
  FlushWakeupsScope(const FlushWakeupsScope&) = delete;
  FlushWakeupsScope& operator=(const FlushWakeupsScope&) = delete;

 private:
  Teller* interrupted_;
};

}  // namespace hami::bind
