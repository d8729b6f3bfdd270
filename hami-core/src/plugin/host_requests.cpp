// Host functions: the items of a batch, and the backends that a plugin passes them to.

#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"
#include "request/api.hpp"

namespace hami {

// ---- Host functions: the keys of requests, and the items of a batch.

Request& request_of(const hami_dict& item) {
  if (!item.request)
    throw Error(ErrorCode::kInvalidArgument, "expected an item of a batch, got the parameters or options of a backend");
  return *item.request;
}

namespace {

// An item that a plugin created for its children.
struct OwnedItem final : hami_dict {
  Ref<Request> owned;
};

bool copy_value(const Value* found, hami_value* out) noexcept {
  if (found) *out = release_to_abi(*found);
  return found != nullptr;
}

void add_dicts(hami_host& host) {
  HAMI_HOST_ENTRY(host, dict_get, [](const hami_dict* dict, const char* key, std::size_t size, hami_value* out) {
    return copy_value(dict->keys->find(view_of(key, size)), out);
  });
  HAMI_HOST_ENTRY(host, dict_take, [](hami_dict* dict, const char* key, std::size_t size, hami_value* out) {
    const bool found = copy_value(dict->keys->find(view_of(key, size)), out);
    if (found) dict->keys->erase(view_of(key, size));
    return found;
  });
  HAMI_HOST_ENTRY(host, dict_set, [](hami_dict* dict, const char* key, std::size_t size, const hami_value* value) {
    const std::string_view name = view_of(key, size);
    check_utf8("a key", name);
    if (name == kTensorRows) {
      dict->keys->erase(name);
      dict->keys->enter(std::string(name), borrow(*value));
    } else {
      dict->keys->set(name, borrow(*value));
    }
  });
  HAMI_HOST_ENTRY(host, dict_erase, [](hami_dict* dict, const char* key, std::size_t size) {
    return dict->keys->erase(view_of(key, size));
  });
  HAMI_HOST_ENTRY(host, dict_size, [](const hami_dict* dict) { return dict->keys->size(); });
  HAMI_HOST_ENTRY(host, dict_at, [](const hami_dict* dict, std::size_t index, hami_text* key, hami_value* out) {
    if (index >= dict->keys->size()) return false;
    const Dict::Entry& entry = *(dict->keys->begin() + static_cast<std::ptrdiff_t>(index));
    *key = text_of(entry.key);
    return copy_value(&entry.value, out);
  });
}

void add_items(hami_host& host) {
  HAMI_HOST_ENTRY(host, item_fail, [](hami_dict* item, hami_error* error) {
    const OwnedError owned(error);
    if (owned) request_of(*item).fail(owned->error);
  });
  HAMI_HOST_ENTRY(host, item_error, [](const hami_dict* item) -> hami_error* {
    if (!item->request || item->request->alive()) return nullptr;
    return make_error(*item->request->error);
  });
  HAMI_HOST_ENTRY(host, item_size,
                  [](const hami_dict* item) -> std::uint64_t { return item->request ? item->request->items : 1; });
  HAMI_HOST_ENTRY(host, item_cancelled,
                  [](const hami_dict* item) { return item->request && item->request->cancelled(); });
  HAMI_HOST_ENTRY(host, item_deadline,
                  [](const hami_dict* item) { return item->request ? item->request->deadline : kNever; });
  HAMI_HOST_ENTRY(host, item_priority,
                  [](const hami_dict* item) -> std::int32_t { return item->request ? item->request->priority : 0; });
  HAMI_HOST_ENTRY(host, item_new, [](const hami_dict* of, hami_dict** out) {
    Request& parent = request_of(*of);
    auto item = std::make_unique<OwnedItem>();
    item->owned = parent.branch({}, 0);
    item->owned->dict = Dict();
    item->owned->items = 1;
    // The parent's thread may wait for this item, and lends it to a child until it completes.
    item->owned->wait_token = Ref<Counted>(make_counted<WaitToken>(WaitToken::Release::kCompleted).get());
    item->keys = &item->owned->dict;
    item->request = item->owned.get();
    *out = item.release();
  });
  HAMI_HOST_ENTRY(host, item_emit, [](hami_dict* item, const hami_value* part, std::int32_t* heard) {
    Request& request = request_of(*item);
    const bool taken = request.has_listener() && request.emit(borrow(*part));
    if (heard) *heard = taken;
  });
  HAMI_HOST_ENTRY(host, item_free, [](hami_dict* item) { delete static_cast<OwnedItem*>(item); });
}

}  // namespace

void add_requests(hami_host& host) {
  add_dicts(host);
  add_items(host);
}

// ---- Host functions: the backends that a plugin calls. These are its children, its dependencies, and instances by name.

namespace {

// Items that have failed do not run.
std::vector<Request*> open_requests(hami_dict* const* items, std::size_t n) {
  std::vector<Request*> requests;
  requests.reserve(n);
  for (std::size_t i = 0; i < n; ++i)
    if (Request& request = request_of(*items[i]); request.alive()) requests.push_back(&request);
  return requests;
}

// The backend of a call. Error(kInvalidArgument) if it must be called on another thread.
Backend& on_required_thread(const hami_backend& child) {
  if (child.required_thread != std::thread::id() && child.required_thread != std::this_thread::get_id())
    throw Error(ErrorCode::kInvalidArgument,
                child.backend->label() +
                    " has a dedicated thread and was called on another one; call it only during "
                    "the plugin's own create and forward, on the thread of that call");
  return *child.backend;
}

}  // namespace

Init& init_of(const hami_context& context) {
  if (!context.init)
    throw Error(ErrorCode::kInvalidArgument,
                context.label + " looked up an instance after its create returned; call backend_find during create");
  return *context.init;
}

void add_children(hami_host& host) {
  HAMI_HOST_ENTRY(host, backend_forward, [](hami_backend* backend, hami_dict* const* items, std::size_t n) {
    const std::vector<Request*> requests = open_requests(items, n);
    if (requests.empty()) return;
    const PluginCall core = PluginCall::of_core();
    on_required_thread(*backend).forward(Batch(requests));
  });
  HAMI_HOST_ENTRY(host, backend_forward_with_dep,
                  [](hami_backend* backend, hami_dict* const* items, std::size_t n, hami_backend* dependency) {
    const std::vector<Request*> requests = open_requests(items, n);
    if (requests.empty()) return;
    const PluginCall core = PluginCall::of_core();
    on_required_thread(*backend).forward_with_dep(Batch(requests), on_required_thread(*dependency));
  });
  HAMI_HOST_ENTRY(host, backend_range, [](const hami_backend* backend, std::uint64_t* min, std::uint64_t* max) {
    *min = 1;  // where the range cannot be determined: no limit
    *max = 0;
    const Range range = backend->backend->range();
    *min = range.min;
    *max = range.is_auto() ? HAMI_AUTO : range.declared() ? range.max : 0;
  });
  HAMI_HOST_ENTRY(host, backend_label, [](const hami_backend* backend) { return text_of(backend->backend->label()); });
  HAMI_HOST_ENTRY(host, backend_inject, [](hami_backend* backend, hami_backend* dependency) {
    on_required_thread(*backend).inject_dependency(dependency->backend);
  });
  HAMI_HOST_ENTRY(host, backend_find,
                  [](hami_context* context, const char* name, std::size_t size, hami_backend** out) {
    Plan plan;
    check_utf8("the name of an instance", view_of(name, size));
    plan.instance = std::string(view_of(name, size));
    plan.label = plan.instance;
    BackendPtr instance = init_of(*context).make(plan);
    instance->describe(plan.label, instance->traits());
    auto found = std::make_unique<hami_backend>(std::move(instance));
    *out = found.get();
    context->found.push_back(std::move(found));
  });
}

}  // namespace hami
