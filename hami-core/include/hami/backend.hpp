// The C++17 SDK for native backends. A plugin is a shared library that runs with every later hami-core of the same ABI major
// version.
//
//   #include <hami/backend.hpp>
//
//   class AddOne : public hami::Backend {
//     void init_(const hami::Params& params) override { step_ = params.get<std::int64_t>("step"); }
//     void forward_(hami::Batch batch) override {
//       for (hami::Dict& item : batch) item["result"] = item["data"].as_int() + step_;
//     }
//     std::int64_t step_ = 0;
//   };
//   HAMI_REGISTER(AddOne, "AddOne", "step: int = 1", "Adds `step` to an integer.");
//   HAMI_PLUGIN("acme-addone", "0.1.0")
//
// Compile it with hidden visibility, export only hami_plugin_v1, and do not link any library of hami. An exception fails the
// requests of its call.
// A plugin that needs a later minor version defines it as HAMI_ABI_TARGET before the include. One that can do without defines
// HAMI_ABI_USE_MINOR, the version that it is built with, and HAMI_ABI_MIN_MINOR, the oldest that it runs with. This header and those in sdk/ are compiled into the plugin; they do not belong to the ABI.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "hami/sdk/dict.hpp"
#include "hami/sdk/shared.hpp"

#ifndef HAMI_ABI_MIN_MINOR
#define HAMI_ABI_MIN_MINOR HAMI_ABI_TARGET
#endif

namespace hami {
inline namespace sdk {

// The number of items that one call of forward accepts; `max` 0: no limit; HAMI_AUTO: no limit, and the node learns how many
// pay. Without a `max`, a node runs one item at a time.
struct Range {
  std::uint64_t min = 1;
  std::uint64_t max = 0;
};

// An initialised backend that this one calls: a child, a dependency, or an instance. Call it on the thread of the current call.
class Child {
 public:
  explicit Child(hami_backend* backend) noexcept : backend_(backend) {}

  // Runs the items that have not failed; each then has `result`, or an error, or neither.
  void forward(Batch batch) const { check(host().backend_forward(backend_, batch.raw(), batch.size())); }
  void forward(const std::vector<OwnItem>& items) const {
    std::vector<hami_dict*> raw;
    for (const OwnItem& item : items) raw.push_back(item.dict().raw());
    forward(Batch(raw.data(), raw.size()));
  }
  void forward_with_dep(Batch batch, const Child& dependency) const {
    check(host().backend_forward_with_dep(backend_, batch.raw(), batch.size(), dependency.backend_));
  }
  Range range() const noexcept {
    Range range;
    host().backend_range(backend_, &range.min, &range.max);
    return range;
  }
  std::string_view label() const noexcept { return view(host().backend_label(backend_)); }
  // Injects a dependency into this child, as DI does. Only during init_.
  void inject(const Child& dependency) const { check(host().backend_inject(backend_, dependency.backend_)); }

 private:
  hami_backend* backend_;
};

// Base class of backends. Only forward_ must be overridden. An exception of any type fails the requests of the call; one of the
// destructor is logged.
class Backend {
 public:
  // The declarations of a class. Redeclare a constant in the derived class to change it.
  static constexpr std::uint32_t kFlags = HAMI_THREAD_DEDICATED;
  static constexpr std::uint32_t kMinChildren = 0;
  static constexpr std::uint32_t kMaxChildren = 0;
  static constexpr Range kRange{0, 0};  // the same for every instance; {0, 0}: as range_ returns, else any number

#if HAMI_ABI_USE_MINOR >= 1
  // Names of classes of this plugin, separated by commas. A backend of one of them that directly follows this one in a Sequential is
  // given to absorb_, and only this one runs. Needs the parameter "fuse: bool = true".
  static constexpr const char* kAbsorbs = nullptr;
  // The name of the only child of a use without brackets, if such a backend is installed.
  static constexpr const char* kDefaultChild = nullptr;
  static constexpr std::uint32_t kByDevice = 0;       // HAMI_EACH_REQUEST_BY_DEVICE, …
  static constexpr const char* kForDevice = nullptr;  // "cuda": the implementation of its name for that device
#endif

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() noexcept(false) {}  // so that an exception of a derived destructor can be caught

  // The range of this instance, for classes whose instances differ. Called once, after init_. Without it and without kRange, a
  // backend has the range of its children.
  virtual Range range_() const { return {}; }
#if HAMI_ABI_USE_MINOR >= 1
  // What each item of a request costs in a batch, such as its length: a positive number, for the queue of a node whose first backend this
  // is. Called before the request is queued, on any thread, also during forward_. Without it, all items cost the same.
  virtual double request_cost_(const Dict& item) const {
    (void)item;
    return 1;
  }
#endif

 protected:
  const std::vector<Child>& children() const noexcept { return children_; }
  // An instance of the pipe by name, "node.detect" or "detect.0". Only during init_. Valid as long as this backend exists.
  Child find(std::string_view name) const {
    hami_backend* found = nullptr;
    check(host().backend_find(context_, name.data(), name.size(), &found));
    return Child(found);
  }
  // Options that the backends of one instance share. The core never calls these backends concurrently.
  Dict options() const noexcept { return Dict(host().context_options(context_)); }
  Queue queue(std::string_view name) const { return Queue::find(context_, name); }
  Store store() const noexcept { return Store(context_); }
#if HAMI_ABI_USE_MINOR >= 1
  // The stream on which the backends of this instance work on a device; 0: none was set. Needs HAMI_ABI_MIN_MINOR 1.
  std::int64_t stream(DLDevice device) const noexcept { return host().ctx_stream_get(context_, device); }
  // Only during init_.
  void set_stream(DLDevice device, std::int64_t stream) const {
    check(host().ctx_stream_set(context_, device, stream));
  }
#endif
  // Its name as written, for messages.
  std::string_view label() const noexcept { return view(host().context_label(context_)); }
  std::string_view node() const noexcept { return view(host().context_node(context_)); }
  // The number of this instance of the node; -1: outside of InstancesRegister.
  std::int64_t instance() const noexcept { return host().context_instance(context_); }
  void log(std::string_view text, std::int32_t level = HAMI_LOG_WARNING) const noexcept {
    host().log(context_, level, text.data(), text.size());
  }
  bool log_enabled(std::int32_t level) const noexcept { return host().log_enabled(level) != 0; }
  // Adds to a counter of the node, which pipe.stats() shows.
  void count(std::string_view name, std::int64_t by = 1) const noexcept {
    host().counter_add(context_, name.data(), name.size(), by);
  }

 private:
  virtual void init_(const Params&) {}
  virtual void forward_(Batch batch) = 0;
  virtual void forward_with_dep_(Batch, const Child&) {
    throw Error(HAMI_UNIMPLEMENTED, std::string(view(host().context_label(context_))) + " has no forward_with_dep");
  }
  virtual void inject_dependency_(const Child&) {
    throw Error(HAMI_UNIMPLEMENTED, std::string(view(host().context_label(context_))) + " takes no dependency");
  }
#if HAMI_ABI_USE_MINOR >= 1
  // From now on, forward_ also does the work of `next`, after its own. `next` exists as long as this backend.
  virtual void absorb_(Backend&) {}
#endif
  template <class Class>
  friend struct Thunks;

  hami_context* context_ = nullptr;
  std::vector<Child> children_;
};

// The functions of the class table. No exception leaves them.
template <class Class>
struct Thunks {
  static Backend& object(void* self) noexcept { return *static_cast<Backend*>(self); }

  static hami_error* create(hami_context* context, const hami_dict* params, hami_dict*, hami_backend* const* children,
                            std::size_t n_children, void** self) {
    return guard([&] {
      Backend* const made = new Class;
      hami_error* const error = guard([&] {
        made->context_ = context;
        for (std::size_t i = 0; i < n_children; ++i) made->children_.emplace_back(children[i]);
        made->init_(Params(params));
      });
      if (error) destroy(made);
      check(error);
      *self = made;
    });
  }
  static void destroy(void* self) {
    hami_context* const context = object(self).context_;
    hami_error* const error = guard([&] { delete &object(self); });
    if (!error) return;
    host().error_free(guard([&] {
      const std::string text = "the destructor threw: " + std::string(view(host().error_text(error)));
      host().log(context, HAMI_LOG_WARNING, text.data(), text.size());
    }));
    host().error_free(error);
  }
  static hami_error* forward(void* self, hami_context*, hami_dict* const* items, std::size_t n) {
    return guard([&] { object(self).forward_(Batch(items, n)); });
  }
  static hami_error* range(void* self, std::uint64_t* min, std::uint64_t* max) {
    return guard([&] {
      const Range range = object(self).range_();
      *min = range.min;
      *max = range.max;
    });
  }
  static hami_error* forward_with_dep(void* self, hami_context*, hami_dict* const* items, std::size_t n,
                                      hami_backend* dependency) {
    return guard([&] { object(self).forward_with_dep_(Batch(items, n), Child(dependency)); });
  }
  static hami_error* inject_dependency(void* self, hami_backend* dependency) {
    return guard([&] { object(self).inject_dependency_(Child(dependency)); });
  }
#if HAMI_ABI_USE_MINOR >= 1
  static hami_error* request_cost(void* self, hami_context*, const hami_dict* item, double* cost) {
    return guard([&] { *cost = object(self).request_cost_(Dict(const_cast<hami_dict*>(item))); });
  }
  static hami_error* absorb(void* self, void* next) {
    return guard([&] { object(self).absorb_(object(next)); });
  }
#endif
};

// Whether a class overrides range_. Only the name of an override that is private is inaccessible here, so failure means true.
template <class Class, class = void>
struct overrides_range : std::true_type {};
template <class Class>
struct overrides_range<Class, std::enable_if_t<std::is_same_v<decltype(&Class::range_), Range (Backend::*)() const>>>
    : std::false_type {};
#if HAMI_ABI_USE_MINOR >= 1
template <class Class, class = void>
struct overrides_request_cost : std::true_type {};
template <class Class>
struct overrides_request_cost<
    Class, std::enable_if_t<std::is_same_v<decltype(&Class::request_cost_), double (Backend::*)(const Dict&) const>>>
    : std::false_type {};
#endif

HAMI_SDK_OWN_ inline std::vector<const hami_backend_class*>& registered_classes() {
  static std::vector<const hami_backend_class*> classes;
  return classes;
}

HAMI_SDK_OWN_ inline bool register_table(const hami_backend_class& cls) {
  static std::deque<hami_backend_class> tables;
  tables.push_back(cls);
  registered_classes().push_back(&tables.back());
  return true;
}

template <class Class>
HAMI_SDK_OWN_ bool register_class(const char* name, const char* params, const char* doc) {
  using Thunk = Thunks<Class>;
  hami_backend_class cls{};
  cls.struct_size = sizeof cls;
  cls.flags = Class::kFlags;
  cls.name = name;
  cls.doc = doc;
  cls.params = params;
  cls.min_children = Class::kMinChildren;
  cls.max_children = Class::kMaxChildren;
  cls.min_items = Class::kRange.min;
  cls.max_items = Class::kRange.max;
  cls.create = Thunk::create;
  cls.destroy = Thunk::destroy;
  cls.forward = Thunk::forward;
  cls.range = overrides_range<Class>::value ? Thunk::range : nullptr;
  cls.forward_with_dep = Thunk::forward_with_dep;
  cls.inject_dependency = Thunk::inject_dependency;
#if HAMI_ABI_USE_MINOR >= 1
  cls.absorbs = Class::kAbsorbs;
  cls.absorb = Thunk::absorb;
  cls.default_child = Class::kDefaultChild;
  cls.by_device = Class::kByDevice;
  cls.device = Class::kForDevice;
  cls.request_cost = overrides_request_cost<Class>::value ? Thunk::request_cost : nullptr;
#endif
  return register_table(cls);
}

HAMI_SDK_OWN_ inline bool register_generated([[maybe_unused]] const char* name, [[maybe_unused]] const char* expression,
                                             [[maybe_unused]] const char* params) {
#if HAMI_ABI_USE_MINOR >= 1
  hami_backend_class cls{};
  cls.struct_size = sizeof cls;
  cls.name = name;
  cls.params = params;
  cls.expression = expression;
  register_table(cls);
#endif
  return true;
}

// The implementation of hami_plugin_v1.
HAMI_SDK_OWN_ inline const hami_plugin* enter(hami_fill fill, hami_error** error, const char* name,
                                              const char* version) {
  hami_host table{};
  table.slot_count = HAMI_HOST_SLOTS;
  table.abi_major = HAMI_ABI_MAJOR;
  table.abi_minor = HAMI_ABI_MINOR;
  table.min_minor = HAMI_ABI_MIN_MINOR;
  *error = fill(&table);
  if (*error) return nullptr;
  if (!host().error_new) host() = table;  // only once: if it is called again, backends may be running
  static hami_plugin plugin;
  plugin = {sizeof(hami_plugin),        HAMI_ABI_MAJOR, HAMI_ABI_MINOR, name, version, registered_classes().data(),
            registered_classes().size()};
  return &plugin;
}

}  // namespace sdk
}  // namespace hami

#define HAMI_REGISTER_JOIN_(a, b) a##b
#define HAMI_REGISTER_AT_(Class, number, ...)                                        \
  [[maybe_unused]] static const bool HAMI_REGISTER_JOIN_(hami_registered_, number) = \
      ::hami::register_class<Class>(__VA_ARGS__)

// Registers a class: name, parameters, and one sentence for its documentation. Parameters, for example:
// "model: path; max: int = 1 {1..64}; device: str = 'cpu' {cpu,gpu}; post: str?"
#define HAMI_REGISTER(Class, name, params, doc) HAMI_REGISTER_AT_(Class, __COUNTER__, name, params, doc)

#define HAMI_GENERATE_AT_(number, ...)                                                                         \
  static_assert(HAMI_ABI_USE_MINOR >= 1 && HAMI_ABI_MIN_MINOR >= 1,                                            \
                "HAMI_GENERATE_BACKEND needs plugin ABI 1.1: #define HAMI_ABI_TARGET 1 before the include of " \
                "hami/backend.hpp");                                                                           \
  [[maybe_unused]] static const bool HAMI_REGISTER_JOIN_(hami_registered_, number) =                           \
      ::hami::register_generated(__VA_ARGS__)

// Registers a name that is replaced by an expression, as hami.generate does in Python. `params`: defaults of parameters of the
// backends in the expression, "width: int = 224; color: str = 'rgb'"; "" if there are none. Since 1.1.
#define HAMI_GENERATE_BACKEND(name, expression, params) HAMI_GENERATE_AT_(__COUNTER__, name, expression, params)

// Defines the plugin's entry. Use it once in a plugin, at namespace scope.
#define HAMI_PLUGIN(name, version)                                                                          \
  extern "C" HAMI_SDK_OWN_ const char HAMI_SDK_MARK_ = 0;                                                   \
  extern "C" __attribute__((visibility("default"))) const hami_plugin* hami_plugin_v1(hami_fill fill,       \
                                                                                      hami_error** error) { \
    return ::hami::enter(fill, error, name, version);                                                       \
  }
