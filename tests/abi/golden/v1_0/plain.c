/* A plugin in C99, without the SDK: PREFIX + "Add" adds `step` to an integer. */
#include <stdlib.h>
#include <string.h>

#include "hami/abi.h"

#define TEXT(token) #token
#define NAME(prefix, name) TEXT(prefix) name

static hami_host host;

static hami_error* type_error(const char* text) { return host.error_new(HAMI_DATA_TYPE, text, strlen(text)); }

static void release(hami_value value) {
  if (value.kind >= HAMI_STR) host.object_release(value.as.o);
}

static hami_error* create(hami_context* context, const hami_dict* params, hami_dict* options,
                          hami_backend* const* children, size_t n_children, void** self) {
  hami_value step;
  int64_t* made = malloc(sizeof *made);
  (void)context, (void)options, (void)children, (void)n_children;
  if (!made) return host.error_new(HAMI_RESOURCE_EXHAUSTED, "no memory", 9);
  host.dict_get(params, "step", 4, &step);
  *made = step.as.i;
  *self = made;
  return NULL;
}

static void destroy(void* self) { free(self); }

static hami_error* forward(void* self, hami_context* context, hami_dict* const* items, size_t n) {
  (void)context;
  for (size_t i = 0; i < n; ++i) {
    hami_value data;
    if (!host.dict_get(items[i], "data", 4, &data)) {
      host.item_fail(items[i], type_error("the request has no `data`"));
    } else if (data.kind != HAMI_INT) {
      release(data);
      host.item_fail(items[i], type_error("expected an int"));
    } else {
      hami_error* error;
      data.as.i += *(int64_t*)self;
      error = host.dict_set(items[i], "result", 6, &data);
      if (error) return error;
    }
  }
  return NULL;
}

static const hami_backend_class add = {
    .struct_size = sizeof(hami_backend_class),
    .flags = HAMI_CONCURRENT | HAMI_QUICK,
    .name = NAME(PREFIX, "Add"),
    .doc = "Adds `step` to an integer.",
    .params = "step: int = 1",
    .create = create,
    .destroy = destroy,
    .forward = forward,
};

static const hami_backend_class* const classes[] = {&add};
static const hami_plugin plugin = {
    .struct_size = sizeof(hami_plugin),
    .abi_major = HAMI_ABI_MAJOR,
    .abi_minor = HAMI_ABI_MINOR,
    .name = "golden-plain",
    .version = "1.0",
    .classes = classes,
    .n_classes = 1,
};

__attribute__((visibility("default"))) const hami_plugin* hami_plugin_v1(hami_fill fill, hami_error** error);

const hami_plugin* hami_plugin_v1(hami_fill fill, hami_error** error) {
  host.slot_count = HAMI_HOST_SLOTS;
  host.abi_major = HAMI_ABI_MAJOR;
  host.abi_minor = HAMI_ABI_MINOR;
  *error = fill(&host);
  return *error ? NULL : &plugin;
}
