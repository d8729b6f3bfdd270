/* Calls of a pipe from native code, without Python and without its GIL: from the threads of a server or of a decoder.
 *
 * hami.native.caller(pipe) returns a PyCapsule named HAMI_CALLER_NAME, whose pointer is a hami_caller. The code that uses it
 * links nothing of hami; ctypes can pass the pointer on. Values and errors are those of hami/abi.h, whose host table comes from
 * `fill`. The rules of that header hold: arguments are borrowed, results belong to the caller of a function, and no exception
 * crosses. The functions may be called from any thread, never block, and need no GIL.
 *
 * Like the host table, hami_caller_table grows only at its end: a program reads a function only if struct_size covers it. */
#ifndef HAMI_CALLER_H_
#define HAMI_CALLER_H_

#include "hami/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HAMI_CALLER_NAME "hami.caller.v1"

typedef struct hami_caller hami_caller;       /* counted; it keeps neither the pipe nor its backends alive */
typedef struct hami_submitted hami_submitted; /* one request that was started; counted */

/* Called once for each started request, on any thread, possibly before `submit` returns; it must not block. It owns the error, NULL
 * after a success. `request`: its keys after the run, among them `result`; borrowed, and NULL after an error. */
typedef void (*hami_submit_done)(void* data, hami_error* error, const hami_dict* request);

typedef struct hami_caller_table {
  uint32_t struct_size; /* sizeof(hami_caller_table) of the core */
  uint32_t zero;
  hami_fill fill; /* as in the entry of a plugin */
  void (*retain)(hami_caller* caller);
  void (*release)(hami_caller* caller);
  /* Starts one request with these keys: `data`, the inputs by name, `priority` and others. While the queue of the node is full, the
   * request waits, and this function does not. `timeout`: nanoseconds, INT64_MAX for no limit. *started, which may be NULL, is
   * for `cancel`, and released with started_release. If this returns an error, for a closed pipe HAMI_UNAVAILABLE, `done` is not
   * called. */
  hami_error* (*submit)(hami_caller* caller, const hami_text* keys, const hami_value* values, size_t n, int64_t timeout,
                        hami_submit_done done, void* data, hami_submitted** started);
  /* Completes the request with HAMI_CANCELLED, if it has no outcome yet; `done` is called before this returns. 0: it had one. */
  int32_t (*cancel)(hami_submitted* started);
  void (*started_release)(hami_submitted* started);
  /* A value for the key `hami.visits` of one request, in which the core records when the request is at which node. Python reads it:
   * hami.observe.RequestTimes takes a dict that has it under this key. */
  hami_error* (*visits_new)(hami_value* out);
} hami_caller_table;

struct hami_caller {
  const hami_caller_table* table;
};

#ifdef __cplusplus
}
#endif

#endif /* HAMI_CALLER_H_ */
