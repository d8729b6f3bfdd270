// A plugin without the SDK, which does in the function `where` what the SDK prevents: `how` it lets an exception out, or crashes.
// With CRASH_ON_LOAD, its initialisation crashes.
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "hami/abi.h"

#define TEXT(token) #token
#define NAME(prefix, name) TEXT(prefix) name

namespace {

hami_host host;

struct Instance {
  std::string where;
  std::string how;
};

std::string text(const hami_dict* params, const char* key) {
  hami_value value;
  hami_text view;
  if (!host.dict_get(params, key, std::strlen(key), &value)) return "";
  host.text_view(&value, &view);
  const std::string found(view.data, view.size);
  host.object_release(value.as.o);
  return found;
}

void misbehave(const std::string& how) {
  if (how == "exception") throw std::runtime_error("no luck");
  if (how == "int") throw 3;
  if (how == "abort") std::abort();
  if (how == "null") *static_cast<volatile int*>(nullptr) = 1;
}

void misbehave_in(const void* self, const char* function) {
  const auto& instance = *static_cast<const Instance*>(self);
  if (instance.where == function) misbehave(instance.how);
}

hami_error* create(hami_context*, const hami_dict* params, hami_dict*, hami_backend* const*, size_t, void** self) {
  const std::string where = text(params, "where");
  const std::string how = text(params, "how");
  if (where == "create") misbehave(how);
  *self = new Instance{where, how};
  return nullptr;
}

void destroy(void* self) {
  const Instance instance = *static_cast<Instance*>(self);
  delete static_cast<Instance*>(self);
  misbehave_in(&instance, "destroy");
}

hami_error* forward(void* self, hami_context*, hami_dict* const* items, size_t n) {
  misbehave_in(self, "forward");
  const auto& instance = *static_cast<const Instance*>(self);
  hami_value result{HAMI_INT, 0, {1}};
  if (instance.where == "release")
    host.opaque_new("test.raw", new std::string(instance.how),
                    [](void* how) { misbehave(*static_cast<std::string*>(how)); }, &result);
  if (instance.where == "callback") {
    hami_value event;
    host.event_new(&event);
    host.event_on_done(&event, [](void* how, const hami_value*) { misbehave(*static_cast<std::string*>(how)); },
                       new std::string(instance.how), nullptr);
    host.event_notify(&event, &result, nullptr);
    host.object_release(event.as.o);
  }
  if (instance.where == "deleter") {
    struct Memory {
      DLManagedTensorVersioned managed{};
      int64_t shape[1] = {1};
      float value = 1;
      std::string how;
    };
    auto* const memory = new Memory;
    memory->how = instance.how;
    memory->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    memory->managed.manager_ctx = memory;
    memory->managed.deleter = [](DLManagedTensorVersioned* managed) {
      misbehave(static_cast<Memory*>(managed->manager_ctx)->how);
    };
    memory->managed.dl_tensor = {&memory->value, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, memory->shape, nullptr, 0};
    host.tensor_adopt(&memory->managed, &result);
  }
  if (instance.where == "thread") std::thread([&] { misbehave(instance.how); }).join();
  for (size_t i = 0; i < n; ++i) host.dict_set(items[i], "result", 6, &result);
  if (result.kind != HAMI_INT) host.object_release(result.as.o);
  return nullptr;
}

hami_error* range(void* self, uint64_t* min, uint64_t* max) {
  misbehave_in(self, "range");
  *min = 1;
  *max = 8;
  return nullptr;
}

hami_error* forward_with_dep(void* self, hami_context* context, hami_dict* const* items, size_t n, hami_backend*) {
  misbehave_in(self, "forward_with_dep");
  return forward(self, context, items, n);
}

hami_error* inject_dependency(void* self, hami_backend*) {
  misbehave_in(self, "inject_dependency");
  return nullptr;
}

// Runs its child, which may crash.
hami_error* forward_child(void* self, hami_context*, hami_dict* const* items, size_t n) {
  return host.backend_forward(static_cast<hami_backend*>(self), items, n);
}
hami_error* create_parent(hami_context*, const hami_dict*, hami_dict*, hami_backend* const* children, size_t,
                          void** self) {
  *self = children[0];
  return nullptr;
}

const hami_backend_class raw{sizeof(hami_backend_class),
                             HAMI_THREAD_SERIALIZED,
                             NAME(PREFIX, "Raw"),
                             nullptr,
                             "where: str; how: str",
                             0,
                             0,
                             0,
                             0,
                             create,
                             destroy,
                             forward,
                             range,
                             forward_with_dep,
                             inject_dependency};
const hami_backend_class parent{sizeof(hami_backend_class),
                                HAMI_THREAD_SERIALIZED,
                                NAME(PREFIX, "RawParent"),
                                nullptr,
                                nullptr,
                                1,
                                1,
                                0,
                                0,
                                create_parent,
                                [](void*) {},
                                forward_child,
                                nullptr,
                                nullptr,
                                nullptr};
const hami_backend_class* const classes[] = {&raw, &parent};
const hami_plugin plugin{sizeof(hami_plugin), HAMI_ABI_MAJOR, HAMI_ABI_MINOR, "raw", "0.1", classes, 2};

#ifdef CRASH_ON_LOAD
const bool crashed = (misbehave("null"), true);
#endif

}  // namespace

extern "C" __attribute__((visibility("default"))) const hami_plugin* hami_plugin_v1(hami_fill fill,
                                                                                    hami_error** error) {
  host.slot_count = HAMI_HOST_SLOTS;
  host.abi_major = HAMI_ABI_MAJOR;
  *error = fill(&host);
  return *error ? nullptr : &plugin;
}
