// ThreadMode that the interpreter ends stay where they are.
#include "interpreter_end.h"

#include <pthread.h>
#include <unistd.h>

static void stay(void *unused) {
  (void)unused;
  for (;;) pause();
}

void hami_stay_here(void) { stay(NULL); }

PyGILState_STATE hami_ensure_gil(void) {
  PyGILState_STATE state;
  pthread_cleanup_push(stay, NULL);
  state = PyGILState_Ensure();
  pthread_cleanup_pop(0);
  return state;
}

void hami_restore_thread(PyThreadState *state) {
  pthread_cleanup_push(stay, NULL);
  PyEval_RestoreThread(state);
  pthread_cleanup_pop(0);
}

PyObject *hami_call(PyObject *callable, PyObject *const *arguments, size_t count) {
  PyObject *result;
  pthread_cleanup_push(stay, NULL);
  result = PyObject_Vectorcall(callable, arguments, count, NULL);
  pthread_cleanup_pop(0);
  return result;
}

void hami_drop(PyObject *object) {
  pthread_cleanup_push(stay, NULL);
  Py_DECREF(object);
  pthread_cleanup_pop(0);
}
