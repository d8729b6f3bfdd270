// Wrappers for the CPython calls that may end the calling thread while the interpreter finalizes.
//
// Before CPython 3.14, a thread that requests the GIL during finalization ends in pthread_exit, which unwinds its
// stack. That must not happen: other threads wait for locks that our frames hold, our frames would release Python
// objects without the GIL, and the unwinder linked into a wheel is not the unwinder that glibc loads. These functions
// halt such a thread for the rest of the process instead. They are written in C because pthread_cleanup_push in C jumps
// to its handler and leaves the frames above untouched; in C++ it is a destructor.
#pragma once

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

// Never returns.
void hami_halt_thread(void);
PyGILState_STATE hami_ensure_gil(void);
void hami_restore_thread(PyThreadState* state);
// callable(*arguments). Runs user code, which may release and reacquire the GIL at any time.
PyObject* hami_call(PyObject* callable, PyObject* const* arguments, size_t count);
// PyIter_Send(generator, None, result): runs a generator up to its next value.
PySendResult hami_resume(PyObject* generator, PyObject** result);
// Py_DECREF, which may run a __del__.
void hami_decref(PyObject* object);

#ifdef __cplusplus
}
#endif
