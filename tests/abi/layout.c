/* Sizes, offsets and order of everything in hami/abi.h that a plugin and the core exchange. The test is that this file
 * compiles, as C and as C++. */
#include <assert.h>

#include "hami/abi.h"

#define AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, size) static_assert(sizeof(type) == (size), #type)
/* Slots are numbered from error_new on. */
#define SLOT(number, name) AT(hami_host, name, 16 + 8 * (number))

SIZE(hami_value, 16);
AT(hami_value, kind, 0);
AT(hami_value, zero, 4);
AT(hami_value, as, 8);

SIZE(hami_text, 16);
AT(hami_text, data, 0);
AT(hami_text, size, 8);

static_assert(HAMI_NONE == 0 && HAMI_BOOL == 1 && HAMI_INT == 2 && HAMI_FLOAT == 3, "kinds");
static_assert(HAMI_STR == 16 && HAMI_BYTES == 17 && HAMI_LIST == 18 && HAMI_DICT == 19, "kinds");
static_assert(HAMI_TENSOR == 20 && HAMI_EVENT == 21 && HAMI_BACKEND == 22 && HAMI_OPAQUE == 23, "kinds");

static_assert(HAMI_CANCELLED == 1 && HAMI_UNKNOWN == 2 && HAMI_INVALID_ARGUMENT == 3, "codes");
static_assert(HAMI_DEADLINE_EXCEEDED == 4 && HAMI_NOT_FOUND == 5 && HAMI_ALREADY_EXISTS == 6, "codes");
static_assert(HAMI_RESOURCE_EXHAUSTED == 8 && HAMI_FAILED_PRECONDITION == 9 && HAMI_UNIMPLEMENTED == 12, "codes");
static_assert(HAMI_INTERNAL == 13 && HAMI_UNAVAILABLE == 14 && HAMI_DATA_TYPE == 100 && HAMI_REQUEST == 101, "codes");

static_assert(HAMI_THREAD_DEDICATED == 0 && HAMI_THREAD_SERIALIZED == 1 && HAMI_THREAD_CONCURRENT == 2, "flags");
static_assert(HAMI_THREAD_MASK == 3 && HAMI_NON_BLOCKING == 4 && HAMI_NOT_IDEMPOTENT == 8, "flags");
static_assert(HAMI_NEEDS_GIL == 16, "flags");
static_assert(HAMI_MANY == 0xffffffffu, "HAMI_MANY");
static_assert(HAMI_LOG_DEBUG == 10 && HAMI_LOG_INFO == 20 && HAMI_LOG_WARNING == 30 && HAMI_LOG_ERROR == 40, "levels");

AT(hami_backend_class, struct_size, 0);
AT(hami_backend_class, flags, 4);
AT(hami_backend_class, name, 8);
AT(hami_backend_class, doc, 16);
AT(hami_backend_class, params, 24);
AT(hami_backend_class, min_children, 32);
AT(hami_backend_class, max_children, 36);
AT(hami_backend_class, min_items, 40);
AT(hami_backend_class, max_items, 48);
AT(hami_backend_class, create, 56);
AT(hami_backend_class, destroy, 64);
AT(hami_backend_class, forward, 72);
AT(hami_backend_class, range, 80);
AT(hami_backend_class, forward_with_dep, 88);
AT(hami_backend_class, inject_dependency, 96);

AT(hami_host, slot_count, 0);
AT(hami_host, abi_major, 4);
AT(hami_host, abi_minor, 6);
AT(hami_host, min_minor, 8);
AT(hami_host, zero, 10);
SLOT(0, error_new);
SLOT(1, error_code);
SLOT(2, error_text);
SLOT(3, error_payload);
SLOT(4, error_copy);
SLOT(5, error_set_final);
SLOT(6, error_is_final);
SLOT(7, error_free);
SLOT(8, object_retain);
SLOT(9, object_release);
SLOT(10, str_new);
SLOT(11, bytes_new);
SLOT(12, text_view);
SLOT(13, list_new);
SLOT(14, list_size);
SLOT(15, list_at);
SLOT(16, map_new);
SLOT(17, map_size);
SLOT(18, map_at);
SLOT(19, tensor_new);
SLOT(20, tensor_adopt);
SLOT(21, tensor_of);
SLOT(22, tensor_view);
SLOT(23, tensor_export);
SLOT(24, opaque_new);
SLOT(25, opaque_view);
SLOT(26, dict_get);
SLOT(27, dict_take);
SLOT(28, dict_set);
SLOT(29, dict_erase);
SLOT(30, dict_size);
SLOT(31, dict_at);
SLOT(32, item_fail);
SLOT(33, item_error);
SLOT(34, item_size);
SLOT(35, item_cancelled);
SLOT(36, item_deadline);
SLOT(37, item_priority);
SLOT(38, item_new);
SLOT(39, item_free);
SLOT(40, backend_forward);
SLOT(41, backend_forward_with_dep);
SLOT(42, backend_range);
SLOT(43, backend_label);
SLOT(44, backend_inject);
SLOT(45, backend_find);
SLOT(46, event_new);
SLOT(47, event_notify);
SLOT(48, event_fail);
SLOT(49, event_is_done);
SLOT(50, event_wait);
SLOT(51, event_on_done);
SLOT(52, queue_find);
SLOT(53, queue_push);
SLOT(54, queue_pop);
SLOT(55, store_create);
SLOT(56, store_insert);
SLOT(57, store_get);
SLOT(58, store_take);
SLOT(59, store_remove);
SLOT(60, context_node);
SLOT(61, context_label);
SLOT(62, context_instance);
SLOT(63, context_options);
SLOT(64, log_enabled);
SLOT(65, log);
SLOT(66, counter_add);
SLOT(67, clock_now);
#if HAMI_ABI_USE_MINOR == 0
static_assert(HAMI_HOST_SLOTS == 68, "slots of minor 0");
SIZE(hami_backend_class, 104);
#else
SLOT(68, item_emit);
SLOT(69, device_tensor_adopt);
SLOT(70, device_tensor_of);
SLOT(71, device_tensor_view);
SLOT(72, ctx_stream_get);
SLOT(73, ctx_stream_set);
SIZE(hami_backend_class, 160);
AT(hami_backend_class, expression, 104);
AT(hami_backend_class, absorbs, 112);
AT(hami_backend_class, absorb, 120);
AT(hami_backend_class, default_child, 128);
AT(hami_backend_class, by_device, 136);
AT(hami_backend_class, device, 144);
AT(hami_backend_class, request_cost, 152);
#endif

SIZE(hami_plugin, 40);
AT(hami_plugin, struct_size, 0);
AT(hami_plugin, abi_major, 4);
AT(hami_plugin, abi_minor, 6);
AT(hami_plugin, name, 8);
AT(hami_plugin, version, 16);
AT(hami_plugin, classes, 24);
AT(hami_plugin, n_classes, 32);

SIZE(DLDataType, 4);
SIZE(DLDevice, 8);
SIZE(DLTensor, 48);
AT(DLTensor, data, 0);
AT(DLTensor, device, 8);
AT(DLTensor, ndim, 16);
AT(DLTensor, dtype, 20);
AT(DLTensor, shape, 24);
AT(DLTensor, strides, 32);
AT(DLTensor, byte_offset, 40);
SIZE(DLManagedTensorVersioned, 80);
AT(DLManagedTensorVersioned, version, 0);
AT(DLManagedTensorVersioned, manager_ctx, 8);
AT(DLManagedTensorVersioned, deleter, 16);
AT(DLManagedTensorVersioned, flags, 24);
AT(DLManagedTensorVersioned, dl_tensor, 32);

static_assert(sizeof(HAMI_ENTRY_NAME) == sizeof("hami_plugin_v1"), "the name of the entry contains the major version");

#if __has_include("hami/caller.h") /* the golden copy is older */
#include "hami/caller.h"

AT(hami_caller, table, 0);
AT(hami_caller_table, struct_size, 0);
AT(hami_caller_table, fill, 8);
AT(hami_caller_table, retain, 16);
AT(hami_caller_table, release, 24);
AT(hami_caller_table, submit, 32);
AT(hami_caller_table, cancel, 40);
AT(hami_caller_table, started_release, 48);
AT(hami_caller_table, visits_new, 56);
#endif
