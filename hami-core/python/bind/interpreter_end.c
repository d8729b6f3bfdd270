// Halts threads that the finalizing interpreter would end.
#include "interpreter_end.h"

#include <pthread.h>
#include <unistd.h>

static void halt(void* unused) {
  (void)unused;
  for (;;) pause();
}

void hami_halt_thread(void) { halt(NULL); }

PyGILState_STATE hami_ensure_gil(void) {
  PyGILState_STATE state;
  pthread_cleanup_push(halt, NULL);
  state = PyGILState_Ensure();
  pthread_cleanup_pop(0);
  return state;
}

void hami_restore_thread(PyThreadState* state) {
  pthread_cleanup_push(halt, NULL);
  PyEval_RestoreThread(state);
  pthread_cleanup_pop(0);
}

PyObject* hami_call(PyObject* callable, PyObject* const* arguments, size_t count) {
  PyObject* result;
  pthread_cleanup_push(halt, NULL);
  result = PyObject_Vectorcall(callable, arguments, count, NULL);
  pthread_cleanup_pop(0);
  return result;
}

PySendResult hami_resume(PyObject* generator, PyObject** result) {
  PySendResult state;
  pthread_cleanup_push(halt, NULL);
  state = PyIter_Send(generator, Py_None, result);
  pthread_cleanup_pop(0);
  return state;
}

void hami_decref(PyObject* object) {
  pthread_cleanup_push(halt, NULL);
  Py_DECREF(object);
  pthread_cleanup_pop(0);
}
