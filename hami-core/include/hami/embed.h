/* Pipes in a program without Python: what libhami.a, built with -DHAMI_EMBED=ON, shows to C. hami/embed.hpp is the same in
 * C++. Values and errors are those of hami/abi.h; no part of the frozen contract: a program is linked with one libhami.a.
 *
 * What goes in is borrowed; what comes out belongs to the caller. Each function returns NULL, or the error. */
#ifndef HAMI_EMBED_H_
#define HAMI_EMBED_H_

#include "hami/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hami_pipe hami_pipe;

/* The functions by which values and errors are made and read. */
const hami_host* hami_embedded_host(void);

/* Makes the backends of a plugin's library known to the pipes of this process; *names: their names, a list. */
hami_error* hami_load_plugin(const char* path, hami_value* names);

/* `config`: an expression as a str, or a dict of what a configuration has at its top level. */
hami_error* hami_pipe_new(const hami_value* config, hami_pipe** out);

/* Runs one request, a dict; *out: what it is then, a dict. WaitRegistry, for `timeout` nanoseconds or INT64_MAX. */
hami_error* hami_pipe_call(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_value* out);

/* Starts one request. `done` is called once, on any thread, with its error, which it takes over, or what the request is
 * then. It is not called if this fails. */
typedef void (*hami_done)(void* data, hami_error* error, const hami_value* request);
hami_error* hami_pipe_submit(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_done done, void* data);

/* Finishes what is open within `patience` nanoseconds, then fails it. *abandoned: the names of backends that did not come
 * back, a list. */
hami_error* hami_pipe_close(hami_pipe* pipe, int64_t patience, hami_value* abandoned);

/* Closes it, with ten seconds' patience, if that was not done. */
void hami_pipe_free(hami_pipe* pipe);

#ifdef __cplusplus
}
#endif

#endif /* HAMI_EMBED_H_ */
