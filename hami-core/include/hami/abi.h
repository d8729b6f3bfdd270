/* The contract between hami-core and native plugins, version 1.0-rc: C99, no library to link.
 *
 * Four things that are told apart:
 *   ABI version      HAMI_ABI_MAJOR.MINOR, this file. A plugin runs with every later hami-core of the same major. As long
 *                    as it says "rc" anything here may still move; from 1.0 on nothing does, minor versions only add.
 *   package version  of hami-core and of each plugin; says nothing about the ABI.
 *   value kinds      the numbers in hami_kind; they never change, and an unknown one is carried, never interpreted.
 *   not ABI          names and parameters of backends, keys of configurations, texts of errors and logs.
 *
 * A plugin is a shared library with one exported function, hami_plugin_v1. It gets a table of the core's functions and
 * gives a table of its backend classes; it links nothing of hami, and no C++ crosses the border: no exception, no RTTI,
 * no type of the standard library, and memory is freed by the side that took it. hami/backend.hpp does all this in C++.
 *
 * What goes into a call is borrowed for the call. What comes out belongs to the caller: values are released with
 * object_release, errors with error_free. A function returns NULL for success, or the error.
 * The functions may be called from any thread and may wait only where it says so. */
#ifndef HAMI_ABI_H_
#define HAMI_ABI_H_

#include <stddef.h>
#include <stdint.h>

#include "hami/dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HAMI_ABI_MAJOR 1
/* Functions that came with a later minor are declared only for those who ask: #define HAMI_ABI_USE_MINOR 2 before. */
#ifndef HAMI_ABI_USE_MINOR
#define HAMI_ABI_USE_MINOR 0
#endif
#define HAMI_ABI_MINOR HAMI_ABI_USE_MINOR

/* ---- Values ---------------------------------------------------------------------------------------------------- */

enum hami_kind {
  HAMI_NONE = 0,
  HAMI_BOOL = 1, /* in `i`, 0 or 1 */
  HAMI_INT = 2,
  HAMI_FLOAT = 3,
  HAMI_STR = 16, /* UTF-8; from here on counted objects, in `o` */
  HAMI_BYTES = 17,
  HAMI_LIST = 18,
  HAMI_DICT = 19, /* immutable, keys in their order */
  HAMI_TENSOR = 20,
  HAMI_EVENT = 21,
  HAMI_BACKEND = 22,
  HAMI_OPAQUE = 23 /* something that only those understand who know its type key */
};

typedef struct hami_object hami_object;

typedef struct hami_value {
  int32_t kind;
  uint32_t zero; /* and all of `as` that a kind does not use: 0 */
  union {
    int64_t i;
    double f;
    hami_object* o;
  } as;
} hami_value;

typedef struct hami_text {
  const char* data; /* not terminated */
  size_t size;
} hami_text;

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/* The codes of absl and gRPC, and from 100 on our own. What they become in Python stands beside them. */
enum hami_code {
  HAMI_CANCELLED = 1,         /* concurrent.futures.CancelledError */
  HAMI_UNKNOWN = 2,           /* hami.Error, as every code that is not named here */
  HAMI_INVALID_ARGUMENT = 3,  /* ValueError */
  HAMI_DEADLINE_EXCEEDED = 4, /* hami.DeadlineExceeded */
  HAMI_NOT_FOUND = 5,         /* hami.NotFound */
  HAMI_ALREADY_EXISTS = 6,    /* hami.AlreadyExists */
  HAMI_RESOURCE_EXHAUSTED = 8, /* MemoryError; final */
  HAMI_FAILED_PRECONDITION = 9, /* hami.ConfigError: as it is configured it cannot work */
  HAMI_UNIMPLEMENTED = 12,
  HAMI_INTERNAL = 13,
  HAMI_UNAVAILABLE = 14,      /* hami.PluginError: something outside that it needs is not there */
  HAMI_DATA_TYPE = 100,       /* hami.DataTypeError */
  HAMI_REQUEST = 101          /* hami.RequestError */
};

typedef struct hami_error hami_error;

/* ---- What a backend works with --------------------------------------------------------------------------------- */

typedef struct hami_context hami_context; /* of one backend, valid as long as it lives */
typedef struct hami_backend hami_backend; /* a child; valid as long as its container */
typedef struct hami_dict hami_dict;       /* the keys of one request, of `params` or of `options`; valid for the call */

/* Threads: the core keeps to what a class declares. */
#define HAMI_THREAD_DEDICATED 0u /* create, forward and destroy on one thread of its own */
#define HAMI_THREAD_SERIALIZED 1u /* one call at a time */
#define HAMI_THREAD_CONCURRENT 2u /* many calls of forward at a time */
#define HAMI_THREAD_MASK 3u
#define HAMI_NON_BLOCKING 4u          /* forward takes a few microseconds and never waits: it may run on any caller's thread */
#define HAMI_NOT_IDEMPOTENT 8u /* a batch that failed is not tried again request by request */
#define HAMI_NEEDS_GIL 16u     /* every call of it holds Python's global lock; where no Python runs it is not made */
/* 32 is kept for classes whose results are still under way on a device when forward returns. A core does not look at bits
 * that it does not know: who cannot do without one says so by min_minor. */

#define HAMI_MANY UINT32_MAX

/* The core reads a field only if struct_size covers it. Those from `range` on may be NULL. */
typedef struct hami_backend_class {
  uint32_t struct_size; /* sizeof(hami_backend_class) */
  uint32_t flags;
  const char* name;
  const char* doc;       /* one sentence; may be NULL */
  const char* params;    /* "model: path; max: int = 1 {1..64}; device: str = 'cpu'"; may be NULL */
  uint32_t min_children; /* how many backends may stand in its brackets */
  uint32_t max_children; /* 0: it takes no brackets; HAMI_MANY: any number */
  /* How many items one forward takes, where that is so for every instance; max_items 0: no limit. Both 0: see `range`. */
  uint64_t min_items;
  uint64_t max_items;

  /* Makes one instance. `params` has every declared parameter; `options` is shared by the backends of one instance of a
   * node; the children are initialised. *self goes into every later call. After an error destroy is not called. */
  hami_error* (*create)(hami_context* context, const hami_dict* params, hami_dict* options,
                        hami_backend* const* children, size_t n_children, void** self);
  void (*destroy)(void* self);
  /* Gives each item its `result`, or fails it with item_fail. An error that it returns is the outcome of every item that
   * has none yet; unless it is final, the core may try these again one by one. */
  hami_error* (*forward)(void* self, hami_context* context, hami_dict* const* items, size_t n_items);

  /* As min_items and max_items, where only the instance knows; asked once after create. *min is 1 and *max 0 before.
   * With neither a backend with children has the range of its children, any other has none. */
  hami_error* (*range)(void* self, uint64_t* min, uint64_t* max);
  /* forward with another backend to call, which is borrowed for the call. */
  hami_error* (*forward_with_dep)(void* self, hami_context* context, hami_dict* const* items, size_t n_items,
                                  hami_backend* dependency);
  /* Gives it a backend to keep; it lives as long as this one. */
  hami_error* (*inject_dependency)(void* self, hami_backend* dependency);
} hami_backend_class;

/* ---- The core's functions -------------------------------------------------------------------------------------- */

/* Levels of `log`; numbers between are levels too. */
enum hami_log_level { HAMI_LOG_DEBUG = 10, HAMI_LOG_INFO = 20, HAMI_LOG_WARNING = 30, HAMI_LOG_ERROR = 40 };

typedef struct hami_host {
  uint32_t slot_count; /* room for this many functions; after fill: how many of them the core has */
  uint16_t abi_major;
  uint16_t abi_minor; /* of the header it was built with; after fill: what the core serves */
  uint16_t min_minor; /* the oldest minor that it can do with */
  uint16_t zero[3];

  /* -- since 1.0: errors. All but error_new take the handle that it, or any function that failed, gave. */
  hami_error* (*error_new)(int32_t code, const char* text, size_t size);
  int32_t (*error_code)(const hami_error* error);
  hami_text (*error_text)(const hami_error* error); /* valid as long as the error */
  /* The exception of another language that it stands for, as an opaque value ("python.object"); HAMI_NONE if none. */
  void (*error_payload)(const hami_error* error, hami_value* out);
  hami_error* (*error_copy)(const hami_error* error);
  void (*error_set_final)(hami_error* error); /* trying the request again cannot help */
  int32_t (*error_is_final)(const hami_error* error);
  void (*error_free)(hami_error* error); /* NULL is let through */

  /* -- since 1.0: values. Those that read one fail with HAMI_DATA_TYPE if it is of another kind. */
  void (*object_retain)(hami_object* object);
  void (*object_release)(hami_object* object);
  hami_error* (*str_new)(const char* text, size_t size, hami_value* out); /* UTF-8, or HAMI_INVALID_ARGUMENT */
  hami_error* (*bytes_new)(const void* bytes, size_t size, hami_value* out);
  hami_error* (*text_view)(const hami_value* value, hami_text* out); /* of str or bytes; valid as long as the value */
  hami_error* (*list_new)(const hami_value* items, size_t n, hami_value* out);
  hami_error* (*list_size)(const hami_value* value, size_t* out);
  hami_error* (*list_at)(const hami_value* value, size_t index, hami_value* out);
  hami_error* (*map_new)(const hami_text* keys, const hami_value* values, size_t n, hami_value* out); /* HAMI_DICT */
  hami_error* (*map_size)(const hami_value* value, size_t* out);
  hami_error* (*map_at)(const hami_value* value, size_t index, hami_text* key, hami_value* out);

  /* -- since 1.0: tensors, in CPU memory. */
  /* Memory of the core, aligned to 64 bytes, rows without gaps, not set to anything. */
  hami_error* (*tensor_new)(DLDataType type, const int64_t* shape, int32_t n_axes, hami_value* out);
  /* Takes the tensor over, also if it fails; its deleter may run on any thread. */
  hami_error* (*tensor_adopt)(DLManagedTensorVersioned* tensor, hami_value* out);
  /* A tensor, or an object of another language that shows its memory as one, as a value of kind HAMI_TENSOR. */
  hami_error* (*tensor_of)(const hami_value* value, hami_value* out);
  /* What it looks like; shape and strides are valid as long as the value. `flags` as in DLPack. */
  hami_error* (*tensor_view)(const hami_value* value, DLTensor* out, uint64_t* flags);
  /* For a library that takes DLPack; keeps the memory alive until its deleter is called. */
  hami_error* (*tensor_export)(const hami_value* value, DLManagedTensorVersioned** out);

  /* -- since 1.0: opaque values. `release` runs once, on any thread, also if it fails. The key, in UTF-8, is copied. */
  hami_error* (*opaque_new)(const char* type_key, void* pointer, void (*release)(void* pointer), hami_value* out);
  hami_error* (*opaque_view)(const hami_value* value, hami_text* type_key, void** pointer);

  /* -- since 1.0: dicts, whose keys are UTF-8. dict_get: 0, and *out untouched, if there is no such key. */
  int32_t (*dict_get)(const hami_dict* dict, const char* key, size_t size, hami_value* out);
  int32_t (*dict_take)(hami_dict* dict, const char* key, size_t size, hami_value* out); /* get and erase */
  hami_error* (*dict_set)(hami_dict* dict, const char* key, size_t size, const hami_value* value);
  int32_t (*dict_erase)(hami_dict* dict, const char* key, size_t size); /* 1 if it was there */
  size_t (*dict_size)(const hami_dict* dict);
  /* In the order in which keys were set; the key is valid until the dict changes. 0: there are not so many. */
  int32_t (*dict_at)(const hami_dict* dict, size_t index, hami_text* key, hami_value* out);

  /* -- since 1.0: the items of a batch, which are dicts with an outcome. */
  void (*item_fail)(hami_dict* item, hami_error* error);      /* takes the error over; the first one counts */
  hami_error* (*item_error)(const hami_dict* item);           /* NULL: it has not failed */
  uint64_t (*item_size)(const hami_dict* item);               /* its request_size */
  int32_t (*item_cancelled)(const hami_dict* item);           /* its caller has left: its result is not needed */
  int64_t (*item_deadline)(const hami_dict* item);            /* on the clock of clock_now; INT64_MAX: none */
  int32_t (*item_priority)(const hami_dict* item);            /* 0 to 255 */
  hami_error* (*item_new)(const hami_dict* of, hami_dict** out); /* an item without keys, on behalf of `of` */
  void (*item_free)(hami_dict* item);                         /* of item_new */

  /* -- since 1.0: children. They may be called during create and forward, on the thread of that call. */
  /* Runs the items that have not failed, none twice; waits. Each then has `result`, or an error, or neither. */
  hami_error* (*backend_forward)(hami_backend* backend, hami_dict* const* items, size_t n_items);
  hami_error* (*backend_forward_with_dep)(hami_backend* backend, hami_dict* const* items, size_t n_items,
                                          hami_backend* dependency);
  void (*backend_range)(const hami_backend* backend, uint64_t* min, uint64_t* max); /* max 0: no limit */
  hami_text (*backend_label)(const hami_backend* backend); /* its name as it was written */
  /* During create: gives `backend` another one to keep, as DI does. */
  hami_error* (*backend_inject)(hami_backend* backend, hami_backend* dependency);
  /* During create: an instance of the pipe by its name, "node.detect" or "detect.0", which may be made later than this one.
   * *out lives as long as the backend of `context`, and may be called on any of its threads. */
  hami_error* (*backend_find)(hami_context* context, const char* name, size_t size, hami_backend** out);

  /* -- since 1.0: events, done once: with a value or an error. */
  hami_error* (*event_new)(hami_value* out);
  /* *first, if it is not NULL: 0 if the event was done already, and nothing happened. */
  hami_error* (*event_notify)(const hami_value* event, const hami_value* value, int32_t* first);
  hami_error* (*event_fail)(const hami_value* event, hami_error* error, int32_t* first); /* takes the error over */
  int32_t (*event_is_done)(const hami_value* event);
  /* Waits until a moment of clock_now, INT64_MAX without limit, else HAMI_DEADLINE_EXCEEDED. *out: what it was notified
   * with; the error that it was failed with is returned. */
  hami_error* (*event_wait)(const hami_value* event, int64_t until, hami_value* out);
  /* Calls back once, on the thread that brings the outcome; here and now if there is one. `release`, which may be NULL, runs
   * once when `data` is not needed any more: after the call, if the event ends without an outcome, or if this fails. */
  hami_error* (*event_on_done)(const hami_value* event, void (*callback)(void* data, const hami_value* event), void* data,
                               void (*release)(void* data));

  /* -- since 1.0: queues of the pipe, opaque values "hami.queue". Both wait until a moment of clock_now. */
  /* By name, made when it is first asked for; not those of nodes, "<node>.queue", which `Send` reaches as a child. */
  hami_error* (*queue_find)(hami_context* context, const char* name, size_t size, hami_value* out);
  hami_error* (*queue_push)(const hami_value* queue, const hami_value* value, int64_t until);
  hami_error* (*queue_pop)(const hami_value* queue, int64_t until, hami_value* out);

  /* -- since 1.0: the pipe's store, request -> key -> value, where both names are an int or a str. HAMI_NOT_FOUND if there
   * is no such request or key, HAMI_ALREADY_EXISTS if there is one already. */
  hami_error* (*store_create)(hami_context* context, const hami_value* request);
  hami_error* (*store_insert)(hami_context* context, const hami_value* request, const hami_value* key,
                              const hami_value* value);
  hami_error* (*store_get)(hami_context* context, const hami_value* request, const hami_value* key, hami_value* out);
  hami_error* (*store_take)(hami_context* context, const hami_value* request, const hami_value* key, hami_value* out);
  hami_error* (*store_remove)(hami_context* context, const hami_value* request); /* with all its values */

  /* -- since 1.0: surroundings. */
  hami_text (*context_node)(const hami_context* context);
  hami_text (*context_label)(const hami_context* context);
  int64_t (*context_instance)(const hami_context* context); /* its number among those of the node; -1: not one of many */
  /* What create got as `options`, for as long as the backend lives; whoever shares it sees to it that they take turns. */
  hami_dict* (*context_options)(const hami_context* context);
  int32_t (*log_enabled)(int32_t level);
  void (*log)(const hami_context* context, int32_t level, const char* text, size_t size);
  /* Adds to a counter of the node, which pipe.stats() shows; it begins at 0. */
  void (*counter_add)(const hami_context* context, const char* name, size_t size, int64_t by);
  int64_t (*clock_now)(void); /* monotonic, in nanoseconds */
} hami_host;

#define HAMI_HOST_SLOTS ((uint32_t)((sizeof(hami_host) - offsetof(hami_host, error_new)) / sizeof(void (*)(void))))

/* ---- The plugin's entry ---------------------------------------------------------------------------------------- */

typedef struct hami_plugin {
  uint32_t struct_size; /* sizeof(hami_plugin) */
  uint16_t abi_major;   /* of the header it was built with, for people */
  uint16_t abi_minor;
  const char* name;
  const char* version;
  const hami_backend_class* const* classes;
  size_t n_classes;
} hami_plugin;

/* Copies the core's functions into the plugin's table, or says why it does not serve it. */
typedef hami_error* (*hami_fill)(hami_host* host);

/* `const hami_plugin* hami_plugin_v1(hami_fill fill, hami_error** error)`: calls `fill` with a table that is all zero
 * but for its head, passes an error of it on in *error and returns NULL; else returns its classes, which are never freed.
 * A library is loaded with RTLD_LOCAL and never closed. */
typedef const hami_plugin* (*hami_entry)(hami_fill fill, hami_error** error);
#define HAMI_ENTRY_NAME "hami_plugin_v1"

#ifdef __cplusplus
}
#endif

#endif /* HAMI_ABI_H_ */
