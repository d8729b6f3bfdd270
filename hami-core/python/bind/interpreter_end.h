// The calls into CPython that may never come back.
//
// CPython before 3.14 ends a thread that wants the global lock while the interpreter finalizes, by pthread_exit from
// deep inside. Its stack must not be unwound: others wait for what our frames hold, our frames let go of Python objects
// without the lock, and a wheel's own unwinder is not the one that glibc loads. So these functions stop such a thread
// where it is, for the rest of the process's life. They are C because there pthread_cleanup_push jumps to its handler
// and leaves the frames above it alone; in C++ it is a destructor.
#pragma once

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

void hami_stay_here(void);
PyGILState_STATE hami_ensure_gil(void);
void hami_restore_thread(PyThreadState *state);
// callable(*arguments): code of users, which lets the lock go and wants it back at any time.
PyObject *hami_call(PyObject *callable, PyObject *const *arguments, size_t count);
// Py_DECREF: may run a __del__.
void hami_drop(PyObject *object);

#ifdef __cplusplus
}
#endif
