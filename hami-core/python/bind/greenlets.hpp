// Greenlets (of gevent, of SQLAlchemy): they switch between stacks on one thread.
#pragma once

#include <Python.h>

namespace hami::bind {

// Called once, before the first ProgramCodeScope: later there may be no memory for them.
void make_greenlet_names();

// Around code of the program that the core calls. If that code switches to another greenlet, the frames of the core
// below it are moved off the stack until the first greenlet continues. Thread-local data of the core refers to these
// frames, so until then no other greenlet of the thread may enter the core: `check_greenlet` throws.
class ProgramCodeScope {
 public:
  ProgramCodeScope() noexcept;
  ~ProgramCodeScope();
  ProgramCodeScope(const ProgramCodeScope&) = delete;
  ProgramCodeScope& operator=(const ProgramCodeScope&) = delete;

 private:
  const bool outer_active_;
  PyObject* const outer_greenlet_;
};

// False if the code of the program that the core called on this thread has switched to another greenlet.
bool on_entered_greenlet() noexcept;
// Error(kReentrantCall) in that case. Functions that enter the core call it first.
void check_greenlet();

// Whether the thread may wait here: not in a greenlet of a gevent hub, whose other greenlets would wait too.
bool may_block() noexcept;
// As check_greenlet, and Error(kReentrantCall) where the thread may not wait. Functions of pipes call it first.
void check_may_block();

}  // namespace hami::bind
