/* The plugin ABI between hami-core and native plugins, version 1: C99, no library to link.
 *
 * Four separate things:
 *   ABI version      HAMI_ABI_MAJOR.MINOR, this file. A plugin runs with every later hami-core of the same major version:
 *                    1.0 is frozen, and minor versions only add.
 *   package version  of hami-core and of each plugin; independent of the ABI.
 *   value kinds      the numbers in hami_kind; they never change. A value of an unknown kind is passed on unread.
 *   not ABI          names and parameters of backends, configuration keys, texts of errors and logs.
 *
 * A plugin is a shared library with one exported function, hami_plugin_v1. It receives the host table, the core's functions,
 * and returns a table of its backend classes. It links nothing of hami, and no C++ crosses the ABI: no exception, no RTTI,
 * no type of the standard library. Memory is freed by the side that allocated it. hami/backend.hpp is a C++ SDK on top.
 *
 * Arguments are borrowed for the call. Results belong to the caller: values are released with object_release, errors with
 * error_free. A function returns NULL for success, or the error.
 * The functions may be called from any thread. They block only where their comment says so. */
#ifndef HAMI_ABI_H_
#define HAMI_ABI_H_

#include <stddef.h>
#include <stdint.h>

#include "hami/dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HAMI_ABI_MAJOR 1
/* Functions and fields of later minor versions are declared only on request: #define HAMI_ABI_TARGET 1 before the include, which
 * is also the oldest minor version that the plugin then runs with. HAMI_ABI_USE_MINOR declares them without this requirement. */
#ifndef HAMI_ABI_TARGET
#define HAMI_ABI_TARGET 0
#endif
#if HAMI_ABI_TARGET > 1
#error "HAMI_ABI_TARGET is newer than these headers, which have the plugin ABI up to 1.1: install a newer hami-core"
#endif
#ifndef HAMI_ABI_USE_MINOR
#define HAMI_ABI_USE_MINOR HAMI_ABI_TARGET
#endif
#define HAMI_ABI_MINOR HAMI_ABI_USE_MINOR

/* ---- Values ---------------------------------------------------------------------------------------------------- */

enum hami_kind {
  HAMI_NONE = 0,
  HAMI_BOOL = 1, /* in `i`, 0 or 1 */
  HAMI_INT = 2,
  HAMI_FLOAT = 3,
  HAMI_STR = 16, /* UTF-8; this kind and all after it are counted objects, in `o` */
  HAMI_BYTES = 17,
  HAMI_LIST = 18,
  HAMI_DICT = 19, /* immutable, ordered */
  HAMI_TENSOR = 20,
  HAMI_EVENT = 21,
  HAMI_BACKEND = 22,
  HAMI_OPAQUE = 23 /* an object that only code which knows its type key can interpret */
};

typedef struct hami_object hami_object;

typedef struct hami_value {
  int32_t kind;
  uint32_t zero; /* must be 0, as must all bytes of `as` that a kind does not use */
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

/* The codes of absl and gRPC, and our own from 100. The comments name the Python exceptions. */
enum hami_code {
  HAMI_CANCELLED = 1,           /* concurrent.futures.CancelledError */
  HAMI_UNKNOWN = 2,             /* hami.Error, as for every code that is not listed here */
  HAMI_INVALID_ARGUMENT = 3,    /* ValueError */
  HAMI_DEADLINE_EXCEEDED = 4,   /* hami.DeadlineExceeded */
  HAMI_NOT_FOUND = 5,           /* hami.NotFound */
  HAMI_ALREADY_EXISTS = 6,      /* hami.AlreadyExists */
  HAMI_RESOURCE_EXHAUSTED = 8,  /* MemoryError; final */
  HAMI_FAILED_PRECONDITION = 9, /* hami.ConfigError: it cannot work as configured */
  HAMI_UNIMPLEMENTED = 12,
  HAMI_INTERNAL = 13,
  HAMI_UNAVAILABLE = 14, /* hami.PluginError: an external requirement is missing */
  HAMI_DATA_TYPE = 100,  /* hami.DataTypeError */
  HAMI_REQUEST = 101     /* hami.RequestError */
};

typedef struct hami_error hami_error;

/* ---- Handles and backend classes ------------------------------------------------------------------------------- */

typedef struct hami_context hami_context; /* the context of one backend; valid as long as the backend exists */
typedef struct hami_backend hami_backend; /* a child; valid as long as its parent exists */
typedef struct hami_dict hami_dict;       /* the keys of one request, of `params` or of `options`; valid for the call */

/* How the core may call a backend. */
#define HAMI_THREAD_DEDICATED 0u  /* create, forward and destroy run on one dedicated thread */
#define HAMI_THREAD_SERIALIZED 1u /* one call at a time, on any thread */
#define HAMI_THREAD_CONCURRENT 2u /* forward may run on several threads at a time */
#define HAMI_THREAD_MASK 3u
#define HAMI_NON_BLOCKING 4u   /* forward takes microseconds and never blocks: it may run on any caller's thread */
#define HAMI_NOT_IDEMPOTENT 8u /* after a failed batch the requests must not run again one by one */
#define HAMI_NEEDS_GIL 16u     /* every call holds Python's GIL; a process without Python cannot create it */
#define HAMI_LIGHTWEIGHT 64u   /* another instance costs nearly nothing; not HAMI_THREAD_DEDICATED */
#define HAMI_LIGHTWEIGHT_ON_DEVICE 128u /* with HAMI_LIGHTWEIGHT: also if `device` is not the CPU */
/* 32 is reserved for classes whose results are still being computed on a device when forward returns. A core ignores unknown
 * bits: a plugin that depends on one must set min_minor. */

#define HAMI_MANY UINT32_MAX
/* hami_backend_class.by_device: when the core chooses the class of the same name for a device instead of this class. */
#define HAMI_EACH_REQUEST_BY_DEVICE 1u /* for requests whose `data` lies on that device */
#define HAMI_WHOLE_BATCH_BY_DEVICE 2u  /* the same; a batch on several devices fails, and its requests run alone */
#define HAMI_EACH_REQUEST_BY_ENGINE \
  3u /* as 1, and for `data` in CPU memory if the instance's engine works on a device */

/* As max_items: any number, and the node learns the batch size. A core that does not know it takes it as no limit. */
#define HAMI_AUTO UINT64_MAX

/* The core reads a field only if struct_size covers it. Those from `range` on may be NULL. */
typedef struct hami_backend_class {
  uint32_t struct_size; /* sizeof(hami_backend_class) */
  uint32_t flags;
  const char* name;
  const char* doc;       /* one sentence; may be NULL */
  const char* params;    /* "model: path; max: int = 1 {1..64}; device: str = 'cpu'"; may be NULL */
  uint32_t min_children; /* minimum number of backends in the brackets */
  uint32_t max_children; /* 0: it takes no brackets; HAMI_MANY: any number */
  /* The number of items that one call of forward accepts, if it is the same for all instances; max_items 0: no limit. If both are
   * 0, see `range`. */
  uint64_t min_items;
  uint64_t max_items;

  /* Creates one instance. `params` has every declared parameter; `options` is shared by the backends of one instance of a
   * node; the children are initialised. *self is passed to every later call. After an error, destroy is not called. */
  hami_error* (*create)(hami_context* context, const hami_dict* params, hami_dict* options,
                        hami_backend* const* children, size_t n_children, void** self);
  void (*destroy)(void* self);
  /* Sets `result` of each item, or fails the item with item_fail. A returned error fails every item that has no outcome; unless
   * it is final, the core may first run these items again, one by one. */
  hami_error* (*forward)(void* self, hami_context* context, hami_dict* const* items, size_t n_items);

  /* The same as min_items and max_items, for one instance; called once after create. *min is 1 and *max is 0 before the call. A
   * class that declares neither has the range of its children, or no limit if it has none. */
  hami_error* (*range)(void* self, uint64_t* min, uint64_t* max);
  /* The same as forward, with a dependency, which is borrowed for the call. */
  hami_error* (*forward_with_dep)(void* self, hami_context* context, hami_dict* const* items, size_t n_items,
                                  hami_backend* dependency);
  /* Injects a dependency, which exists as long as this backend. */
  hami_error* (*inject_dependency)(void* self, hami_backend* dependency);
#if HAMI_ABI_USE_MINOR >= 1
  /* -- since 1.1. If not NULL, the name stands for this expression, as with hami.generate: the core reads no other fields than
   * `name` and `params`, whose defaults are those of parameters of the backends in the expression. */
  const char* expression;
  /* -- since 1.1. Fusion: names of classes of this plugin, separated by commas. Where a backend of one of them directly follows
   * one of this class in a Sequential, this one does the work of both: the core creates both, calls `absorb` with the `self` of
   * the next one, and calls forward of this one only. Both have the same thread mode and the same value of a parameter `device`,
   * and the next one has no brackets. The class that was absorbed last decides about the class that follows it, and the
   * first backend gets all of them. A class that absorbs has a parameter "fuse: bool = true"; where it is false, it does not. */
  const char* absorbs;
  hami_error* (*absorb)(void* self, void* next); /* *next exists as long as *self */
  /* -- since 1.1. The name of the backend in the brackets of a use that is written without brackets; it has none where no such
   * backend is installed. The parameters of this class hold for those of the same names. Needs max_children. */
  const char* default_child;
  /* -- since 1.1. Dispatch by device. `by_device`, one of HAMI_EACH_REQUEST_BY_DEVICE and those after it: other plugins may have
   * classes of this name for devices, and the core chooses by where `data` lies. 0: it always takes this class. Such a class has no
   * brackets, absorbs nothing and is not HAMI_NON_BLOCKING. */
  uint32_t by_device;
  /* -- since 1.1. A kind of device, "cuda": the class is not a backend of its name, but the implementation of that name for the device.
   * Its parameters include those of the class with by_device; it may declare `device`, which is "cuda:0" or the like. */
  const char* device;
  /* -- since 1.1. What each item of a request costs in a batch, such as its length: *cost, a positive number, for the queue of a node
   * whose first backend this is. It is called before the request is queued, on any thread, also during forward. NULL: all cost the same. */
  hami_error* (*request_cost)(void* self, hami_context* context, const hami_dict* item, double* cost);
#endif
} hami_backend_class;

/* ---- The core's functions -------------------------------------------------------------------------------------- */

/* Levels of `log`; numbers in between are levels too. */
enum hami_log_level { HAMI_LOG_DEBUG = 10, HAMI_LOG_INFO = 20, HAMI_LOG_WARNING = 30, HAMI_LOG_ERROR = 40 };

typedef struct hami_host {
  uint32_t slot_count; /* capacity in functions; after fill: how many of them the core has */
  uint16_t abi_major;
  uint16_t abi_minor; /* of the header that the plugin was built with; after fill: the version that the core serves */
  uint16_t min_minor; /* the oldest minor version that the plugin accepts */
  uint16_t zero[3];

  /* -- since 1.0: errors. All but error_new take the handle of an error. */
  hami_error* (*error_new)(int32_t code, const char* text, size_t size);
  int32_t (*error_code)(const hami_error* error);
  hami_text (*error_text)(const hami_error* error); /* valid as long as the error exists */
  /* The exception of another language that it wraps, as an opaque value ("python.object"); HAMI_NONE if none. */
  void (*error_payload)(const hami_error* error, hami_value* out);
  hami_error* (*error_copy)(const hami_error* error);
  void (*error_set_final)(hami_error* error); /* the core does not run the request again */
  int32_t (*error_is_final)(const hami_error* error);
  void (*error_free)(hami_error* error); /* accepts NULL */

  /* -- since 1.0: values. Functions that read one fail with HAMI_DATA_TYPE if it is of another kind. */
  void (*object_retain)(hami_object* object);
  void (*object_release)(hami_object* object);
  hami_error* (*str_new)(const char* text, size_t size, hami_value* out); /* UTF-8, or HAMI_INVALID_ARGUMENT */
  hami_error* (*bytes_new)(const void* bytes, size_t size, hami_value* out);
  hami_error* (*text_view)(const hami_value* value,
                           hami_text* out); /* of str or bytes; valid as long as the value exists */
  hami_error* (*list_new)(const hami_value* items, size_t n, hami_value* out);
  hami_error* (*list_size)(const hami_value* value, size_t* out);
  hami_error* (*list_at)(const hami_value* value, size_t index, hami_value* out);
  hami_error* (*map_new)(const hami_text* keys, const hami_value* values, size_t n, hami_value* out); /* HAMI_DICT */
  hami_error* (*map_size)(const hami_value* value, size_t* out);
  hami_error* (*map_at)(const hami_value* value, size_t index, hami_text* key, hami_value* out);

  /* -- since 1.0: tensors, in CPU memory. */
  /* Uninitialised memory of the core, aligned to 64 bytes, contiguous in row-major order. */
  hami_error* (*tensor_new)(DLDataType type, const int64_t* shape, int32_t n_axes, hami_value* out);
  /* Takes ownership of the tensor, also if it fails; its deleter may run on any thread. */
  hami_error* (*tensor_adopt)(DLManagedTensorVersioned* tensor, hami_value* out);
  /* A tensor, or an object of another language that exports its memory as one, as a value of kind HAMI_TENSOR. */
  hami_error* (*tensor_of)(const hami_value* value, hami_value* out);
  /* Its DLPack description; shape and strides are valid as long as the value exists. `flags` as in DLPack. */
  hami_error* (*tensor_view)(const hami_value* value, DLTensor* out, uint64_t* flags);
  /* For a library that imports DLPack; keeps the memory alive until its deleter is called. */
  hami_error* (*tensor_export)(const hami_value* value, DLManagedTensorVersioned** out);

  /* -- since 1.0: opaque values. `release` runs once, on any thread, also if it fails. The key, in UTF-8, is copied. */
  hami_error* (*opaque_new)(const char* type_key, void* pointer, void (*release)(void* pointer), hami_value* out);
  hami_error* (*opaque_view)(const hami_value* value, hami_text* type_key, void** pointer);

  /* -- since 1.0: dicts, with UTF-8 keys. dict_get returns 0, and leaves *out unchanged, if the key does not exist. */
  int32_t (*dict_get)(const hami_dict* dict, const char* key, size_t size, hami_value* out);
  int32_t (*dict_take)(hami_dict* dict, const char* key, size_t size, hami_value* out); /* get and erase */
  hami_error* (*dict_set)(hami_dict* dict, const char* key, size_t size, const hami_value* value);
  int32_t (*dict_erase)(hami_dict* dict, const char* key, size_t size); /* 1 if the key existed */
  size_t (*dict_size)(const hami_dict* dict);
  /* In insertion order; the key is valid until the dict changes. 0: the index is out of range. */
  int32_t (*dict_at)(const hami_dict* dict, size_t index, hami_text* key, hami_value* out);

  /* -- since 1.0: the items of a batch: dicts with an outcome. */
  void (*item_fail)(hami_dict* item, hami_error* error); /* takes ownership of the error; the first error counts */
  hami_error* (*item_error)(const hami_dict* item);      /* NULL: it has not failed */
  uint64_t (*item_size)(const hami_dict* item);          /* its request_size */
  int32_t (*item_cancelled)(const hami_dict* item);      /* its result is not needed any more */
  int64_t (*item_deadline)(const hami_dict* item);       /* on the clock of clock_now; INT64_MAX: none */
  int32_t (*item_priority)(const hami_dict* item);       /* 0 to 255 */
  hami_error* (*item_new)(const hami_dict* of, hami_dict** out); /* an item without keys, a child of `of` */
  void (*item_free)(hami_dict* item);                            /* of item_new */

  /* -- since 1.0: children. They may be called during create and forward, on the thread of that call. */
  /* Runs the items that have not failed, none twice; blocks. Each then has `result`, or an error, or neither. */
  hami_error* (*backend_forward)(hami_backend* backend, hami_dict* const* items, size_t n_items);
  hami_error* (*backend_forward_with_dep)(hami_backend* backend, hami_dict* const* items, size_t n_items,
                                          hami_backend* dependency);
  void (*backend_range)(const hami_backend* backend, uint64_t* min, uint64_t* max); /* max 0: no limit */
  hami_text (*backend_label)(const hami_backend* backend);                          /* its name as written */
  /* During create: injects a dependency into `backend`, as DI does. */
  hami_error* (*backend_inject)(hami_backend* backend, hami_backend* dependency);
  /* During create: an instance of the pipe by name, "node.detect" or "detect.0", which may be registered later than this one.
   * *out exists as long as the backend of `context` and may be called on any of its threads. */
  hami_error* (*backend_find)(hami_context* context, const char* name, size_t size, hami_backend** out);

  /* -- since 1.0: events, which complete once: with a value or an error. */
  hami_error* (*event_new)(hami_value* out);
  /* *first, if not NULL: 0 if the event was already complete; then the call has no effect. */
  hami_error* (*event_notify)(const hami_value* event, const hami_value* value, int32_t* first);
  hami_error* (*event_fail)(const hami_value* event, hami_error* error,
                            int32_t* first); /* takes ownership of the error */
  int32_t (*event_is_done)(const hami_value* event);
  /* Blocks until the event completes, or until a moment of clock_now (INT64_MAX: no limit), then HAMI_DEADLINE_EXCEEDED.
   * *out: its value; its error is returned. */
  hami_error* (*event_wait)(const hami_value* event, int64_t until, hami_value* out);
  /* Calls back once, on the thread that completes the event; immediately, if it is already complete. `release`, which may be NULL,
   * runs once when `data` is not needed any more: after the call, if the event is destroyed incomplete, or if this fails. */
  hami_error* (*event_on_done)(const hami_value* event, void (*callback)(void* data, const hami_value* event),
                               void* data, void (*release)(void* data));

  /* -- since 1.0: queues of the pipe, opaque values "hami.queue". Push and pop block until a moment of clock_now. */
  /* By name, created on first use; not the queues of nodes, "<node>.queue", which a `Send` child reaches. */
  hami_error* (*queue_find)(hami_context* context, const char* name, size_t size, hami_value* out);
  hami_error* (*queue_push)(const hami_value* queue, const hami_value* value, int64_t until);
  hami_error* (*queue_pop)(const hami_value* queue, int64_t until, hami_value* out);

  /* -- since 1.0: the pipe's store, request -> key -> value; request and key are int or str. HAMI_NOT_FOUND if the
   * request or key does not exist, HAMI_ALREADY_EXISTS if it exists. */
  hami_error* (*store_create)(hami_context* context, const hami_value* request);
  hami_error* (*store_insert)(hami_context* context, const hami_value* request, const hami_value* key,
                              const hami_value* value);
  hami_error* (*store_get)(hami_context* context, const hami_value* request, const hami_value* key, hami_value* out);
  hami_error* (*store_take)(hami_context* context, const hami_value* request, const hami_value* key, hami_value* out);
  hami_error* (*store_remove)(hami_context* context, const hami_value* request); /* with all its values */

  /* -- since 1.0: context, log, counters and clock. */
  hami_text (*context_node)(const hami_context* context);
  hami_text (*context_label)(const hami_context* context);
  int64_t (*context_instance)(
      const hami_context* context); /* the number of this instance of the node; -1: outside of InstancesRegister */
  /* The `options` of create, valid as long as the backend exists. Backends that share it must synchronise their access. */
  hami_dict* (*context_options)(const hami_context* context);
  int32_t (*log_enabled)(int32_t level);
  void (*log)(const hami_context* context, int32_t level, const char* text, size_t size);
  /* Adds to a counter of the node, which pipe.stats() shows; it starts at 0. */
  void (*counter_add)(const hami_context* context, const char* name, size_t size, int64_t by);
  int64_t (*clock_now)(void); /* monotonic, in nanoseconds */
  /* -- since 1.1: partial results. Delivers a part of the result of an item to its caller, and blocks while the caller is behind;
   * then the core does not run the item again. *heard, if not NULL: 0 if the caller takes no parts, and this one was dropped.
   * HAMI_CANCELLED if the caller has left, HAMI_DEADLINE_EXCEEDED. */
#if HAMI_ABI_USE_MINOR >= 1
  hami_error* (*item_emit)(hami_dict* item, const hami_value* part, int32_t* heard);

  /* -- since 1.1: tensors in device memory, also of kind HAMI_TENSOR; tensor_of, tensor_view and tensor_export fail for them with
   * HAMI_DATA_TYPE. A stream is a number as in DLPack: for CUDA the CUstream, or 1 for the legacy default stream. */
  /* As tensor_adopt. `order`, which may be NULL, makes later work on a stream wait until the memory is written, and its reuse wait
   * for that work. It is called for each stream that uses the tensor, on any thread, and must not block. */
  hami_error* (*device_tensor_adopt)(DLManagedTensorVersioned* tensor,
                                     hami_error* (*order)(DLManagedTensorVersioned* tensor, int64_t stream),
                                     hami_value* out);
  /* As tensor_of and tensor_view, for memory on any device. The memory is ordered with `stream`. */
  hami_error* (*device_tensor_of)(const hami_value* value, int64_t stream, hami_value* out);
  hami_error* (*device_tensor_view)(const hami_value* value, DLTensor* out, uint64_t* flags);

  /* -- since 1.1: the stream of an instance: on which the backends of one instance of a node work on a device. */
  int64_t (*ctx_stream_get)(const hami_context* context, DLDevice device);               /* 0: none was set */
  hami_error* (*ctx_stream_set)(hami_context* context, DLDevice device, int64_t stream); /* during create */
#endif
} hami_host;

#define HAMI_HOST_SLOTS ((uint32_t)((sizeof(hami_host) - offsetof(hami_host, error_new)) / sizeof(void (*)(void))))

/* ---- The plugin's entry ---------------------------------------------------------------------------------------- */

typedef struct hami_plugin {
  uint32_t struct_size; /* sizeof(hami_plugin) */
  uint16_t abi_major;   /* of the header that it was built with, for messages */
  uint16_t abi_minor;
  const char* name;
  const char* version;
  const hami_backend_class* const* classes;
  size_t n_classes;
} hami_plugin;

/* Copies the core's functions into the plugin's table. Returns an error if their ABI versions are incompatible. */
typedef hami_error* (*hami_fill)(hami_host* host);

/* `const hami_plugin* hami_plugin_v1(hami_fill fill, hami_error** error)`: calls `fill` with a table that is zero
 * except for its head. If that fails, it stores the error in *error and returns NULL; otherwise it returns its classes, which
 * are never freed. The library is loaded with RTLD_LOCAL and never unloaded. */
typedef const hami_plugin* (*hami_entry)(hami_fill fill, hami_error** error);
#define HAMI_ENTRY_NAME "hami_plugin_v1"

#ifdef __cplusplus
}
#endif

#endif /* HAMI_ABI_H_ */
