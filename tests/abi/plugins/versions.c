/* A plugin built with another version of the ABI, given by MAJOR, MINOR and NEEDS. Its backend returns whether a function
 * of a later minor version is available. */
#define HAMI_ABI_USE_MINOR 1 /* of today's core: the functions after it are later ones */

#include <stddef.h>

#include "hami/abi.h"

static struct {
  hami_host host;
  void (*later)(void);
} table;

static hami_error* create(hami_context* context, const hami_dict* params, hami_dict* options,
                          hami_backend* const* children, size_t n_children, void** self) {
  (void)context, (void)params, (void)options, (void)children, (void)n_children, (void)self;
  return NULL;
}

static void destroy(void* self) { (void)self; }

static hami_error* forward(void* self, hami_context* context, hami_dict* const* items, size_t n) {
  hami_value result = {HAMI_BOOL, 0, {0}};
  size_t i;
  (void)self, (void)context;
  result.as.i = table.later != NULL;
  for (i = 0; i < n; ++i) table.host.dict_set(items[i], "result", 6, &result);
  return NULL;
}

static const struct {
  hami_backend_class known;
  void (*later)(void);
} later_class = {.known = {.struct_size = sizeof(hami_backend_class) + sizeof(void (*)(void)),
                           .flags = HAMI_THREAD_CONCURRENT,
                           .name = "HasLater",
                           .create = create,
                           .destroy = destroy,
                           .forward = forward}};

static const hami_backend_class* const classes[] = {&later_class.known};
static const hami_plugin plugin = {sizeof(hami_plugin), MAJOR, MINOR, "versions", "0.1", classes, 1};

__attribute__((visibility("default"))) const hami_plugin* hami_plugin_v1(hami_fill fill, hami_error** error) {
  table.host.slot_count = HAMI_HOST_SLOTS + 1;
  table.host.abi_major = MAJOR;
  table.host.abi_minor = MINOR;
  table.host.min_minor = NEEDS;
  *error = fill(&table.host);
  return *error ? NULL : &plugin;
}
