/* A program that calls a pipe from its own threads by hami/caller.h. Codes are those of hami_code, 0 for a success, and
 * negative if `submit` returned them. */
#include <pthread.h>
#include <string.h>

#include "hami/caller.h"

static hami_host host;

struct request {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int calls; /* of `done` */
  int32_t code;
  int64_t result;
};

static void done(void* data, hami_error* error, const hami_dict* keys) {
  struct request* const request = data;
  hami_value result;
  pthread_mutex_lock(&request->mutex);
  ++request->calls;
  request->code = error ? host.error_code(error) : 0;
  request->result = -1;
  if (keys && host.dict_get(keys, "result", 6, &result)) request->result = result.as.i;
  host.error_free(error);
  pthread_cond_signal(&request->changed);
  pthread_mutex_unlock(&request->mutex);
}

static int32_t start(hami_caller* caller, struct request* request, int64_t number, int64_t timeout,
                     hami_submitted** started) {
  const hami_text keys[] = {{"data", 4}, {"other", 5}};
  hami_value values[] = {{HAMI_INT, 0, {0}}, {HAMI_NONE, 0, {0}}};
  hami_error* error;
  int32_t code = 0;
  values[0].as.i = number;
  memset(request, 0, sizeof *request);
  pthread_mutex_init(&request->mutex, NULL);
  pthread_cond_init(&request->changed, NULL);
  error = caller->table->submit(caller, keys, values, 2, timeout, done, request, started);
  if (error) code = -host.error_code(error);
  host.error_free(error);
  return code;
}

static int32_t finish(struct request* request) {
  pthread_mutex_lock(&request->mutex);
  while (request->calls == 0) pthread_cond_wait(&request->changed, &request->mutex);
  pthread_mutex_unlock(&request->mutex);
  return request->calls == 1 ? request->code : 1000;
}

__attribute__((visibility("default"))) int32_t open_caller(hami_caller* caller) {
  hami_error* error;
  if (caller->table->struct_size < sizeof(hami_caller_table)) return -1;
  host.slot_count = HAMI_HOST_SLOTS;
  host.abi_major = HAMI_ABI_MAJOR;
  host.abi_minor = HAMI_ABI_MINOR;
  error = caller->table->fill(&host);
  if (error) return -2;
  caller->table->retain(caller);
  return 0;
}

__attribute__((visibility("default"))) void close_caller(hami_caller* caller) { caller->table->release(caller); }

__attribute__((visibility("default"))) int32_t call(hami_caller* caller, int64_t number, int64_t timeout,
                                                    int64_t* result) {
  struct request request;
  int32_t code = start(caller, &request, number, timeout, NULL);
  if (code == 0) code = finish(&request);
  *result = request.result;
  return code;
}

/* The code of a request that is cancelled after its start, or an error of the cancellation: 1001 or 1002. */
__attribute__((visibility("default"))) int32_t call_and_cancel(hami_caller* caller) {
  struct request request;
  hami_submitted* started = NULL;
  int32_t code = start(caller, &request, 1, INT64_MAX, &started);
  if (code != 0) return code;
  if (!caller->table->cancel(started)) code = 1001;
  if (caller->table->cancel(started)) code = 1002;
  caller->table->started_release(started);
  return code ? code : finish(&request);
}

/* One key twice. */
__attribute__((visibility("default"))) int32_t call_wrongly(hami_caller* caller) {
  const hami_text keys[] = {{"data", 4}, {"data", 4}};
  const hami_value values[] = {{HAMI_NONE, 0, {0}}, {HAMI_NONE, 0, {0}}};
  struct request request;
  hami_error* const error = caller->table->submit(caller, keys, values, 2, INT64_MAX, done, &request, NULL);
  const int32_t code = error ? -host.error_code(error) : 0;
  host.error_free(error);
  return code;
}

/* The code of a request whose nodes are recorded in *visits, which the caller of this function owns. */
__attribute__((visibility("default"))) int32_t call_recorded(hami_caller* caller, hami_value* visits) {
  const hami_text keys[] = {{"data", 4}, {"hami.visits", 11}};
  hami_value values[] = {{HAMI_INT, 0, {0}}, {HAMI_NONE, 0, {0}}};
  struct request request;
  hami_error* error = caller->table->visits_new(visits);
  int32_t code = 0;
  memset(&request, 0, sizeof request);
  pthread_mutex_init(&request.mutex, NULL);
  pthread_cond_init(&request.changed, NULL);
  values[1] = *visits;
  if (!error) error = caller->table->submit(caller, keys, values, 2, INT64_MAX, done, &request, NULL);
  if (error) code = -host.error_code(error);
  host.error_free(error);
  return code ? code : finish(&request);
}

__attribute__((visibility("default"))) void release_value(hami_value* value) { host.object_release(value->as.o); }

struct work {
  hami_caller* caller;
  int64_t first;
  int64_t right;
};

enum { kThreads = 4, kRequests = 500 };

static void* run(void* data) {
  struct work* const work = data;
  struct request requests[kRequests];
  int64_t i;
  for (i = 0; i < kRequests; ++i) start(work->caller, &requests[i], work->first + i, INT64_MAX, NULL);
  for (i = 0; i < kRequests; ++i) work->right += finish(&requests[i]) == 0 && requests[i].result == work->first + i;
  return NULL;
}

/* The number of requests of several threads, 2000, that got their own answer. */
__attribute__((visibility("default"))) int64_t call_from_threads(hami_caller* caller) {
  pthread_t threads[kThreads];
  struct work works[kThreads];
  int64_t right = 0;
  int i;
  for (i = 0; i < kThreads; ++i) {
    works[i].caller = caller;
    works[i].first = (int64_t)i * kRequests;
    works[i].right = 0;
    pthread_create(&threads[i], NULL, run, &works[i]);
  }
  for (i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    right += works[i].right;
  }
  return right;
}
