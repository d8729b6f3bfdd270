/* Pipes for programs without Python: the C interface of libhami.a, which is built with -DHAMI_EMBED=ON. hami/embed.hpp is the
 * same in C++. Values and errors are those of hami/abi.h. This interface is not part of the stable plugin ABI: a program is
 * linked with one libhami.a.
 *
 * Arguments are borrowed; results belong to the caller. Each function returns NULL or the error. */
#ifndef HAMI_EMBED_H_
#define HAMI_EMBED_H_

#include "hami/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hami_pipe hami_pipe;

/* The functions that create and read values and errors. */
const hami_host* hami_embedded_host(void);

/* Loads a plugin's library and registers its backends for the pipes of this process; *names: a list of their names. */
hami_error* hami_load_plugin(const char* path, hami_value* names);

/* `config`: an expression as a str, or a dict of the top-level entries of a configuration. */
hami_error* hami_pipe_new(const hami_value* config, hami_pipe** out);

/* Runs one request, a dict, and waits for it; *out: the dict after the run. `timeout`: nanoseconds, INT64_MAX for no limit. */
hami_error* hami_pipe_call(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_value* out);

/* Starts one request. `done` is called once, on any thread, with the error, which it must free, or NULL, and with the request
 * after the run, which it borrows. If this function returns an error, `done` is not called. */
typedef void (*hami_done)(void* data, hami_error* error, const hami_value* request);
hami_error* hami_pipe_submit(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_done done, void* data);

/* Closes the pipe: finishes open requests within `timeout` nanoseconds, then fails the rest. *abandoned: a list of the names of
 * the backends that did not return in time. */
hami_error* hami_pipe_close(hami_pipe* pipe, int64_t timeout, hami_value* abandoned);

/* Frees the pipe; closes it first, with a timeout of ten seconds, if it is open. */
void hami_pipe_free(hami_pipe* pipe);

#ifdef __cplusplus
}
#endif

#endif /* HAMI_EMBED_H_ */
