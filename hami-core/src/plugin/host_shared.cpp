// Host functions: what the backends of a pipe share. Events, queues, and the store.

#include <any>

#include "backend/api.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"

namespace hami {

// ---- Host functions: events.

namespace {

// A new reference: the plugin may release its value during the call.
Ref<Event> event_of(const hami_value& raw) { return Ref<Event>(&as_event(borrow(raw))); }

// `out` is optional.
void store_flag(std::int32_t* out, bool flag) noexcept {
  if (out) *out = flag;
}

void fail_event(const hami_value* event, hami_error* error, std::int32_t* first) {
  const OwnedError owned(error);
  const Ref<Event> failing = event_of(*event);
  if (!owned) throw Error(ErrorCode::kInvalidArgument, "event_fail needs an error, got NULL");
  store_flag(first, failing->fail(owned->error));
}

void wait_for(const Event& event, Nanoseconds until, hami_value& out) {
  if (!event.wait_until(until)) throw Error(ErrorCode::kDeadlineExceeded, "the event did not complete in time");
  if (const std::optional<Error> error = event.error()) throw *error;
  out = release_to_abi(event.value());
}

void call_when_done(const hami_value* event, void (*callback)(void*, const hami_value*), void* data,
                    void (*release)(void*)) {
  const std::shared_ptr<void> held(data, release ? release : [](void*) {});
  event_of(*event)->on_done([callback, held, owner = PluginCall::owner()](const Event& done) {
    const Value value = Value::share(const_cast<Event&>(done));
    hami_value raw;
    std::memcpy(&raw, static_cast<const void*>(&value), sizeof raw);  // borrowed for the call
    try {
      call_plugin("a callback of an event", owner.c_str(), [&] { callback(held.get(), &raw); });
    } catch (const Error& error) {
      log("hami", error.message());
    }
  });
}

}  // namespace

void add_events(hami_host& host) {
  HAMI_HOST_ENTRY(host, event_new, [](hami_value* out) { *out = release_to_abi(Value::share(*make_object<Event>())); });
  HAMI_HOST_ENTRY(host, event_notify, [](const hami_value* event, const hami_value* value, std::int32_t* first) {
    store_flag(first, event_of(*event)->notify(borrow(*value)));
  });
  HAMI_HOST_ENTRY(host, event_fail, fail_event);
  HAMI_HOST_ENTRY(host, event_is_done, [](const hami_value* event) { return event_of(*event)->done(); });
  HAMI_HOST_ENTRY(host, event_wait, [](const hami_value* event, std::int64_t until, hami_value* out) {
    wait_for(*event_of(*event), until, *out);
  });
  HAMI_HOST_ENTRY(host, event_on_done, call_when_done);
}

// ---- Host functions: queues of the pipe.

namespace {

Ref<Queue> queue_of(const hami_value& raw) { return Ref<Queue>(&as_queue(borrow(raw))); }

}  // namespace

void add_queues(hami_host& host) {
  HAMI_HOST_ENTRY(host, queue_find, [](hami_context* context, const char* name, std::size_t size, hami_value* out) {
    const Ref<Queue> queue = context->pipe->resources.queue_by_name(std::string(view_of(name, size)));
    *out = release_to_abi(Value::share(*queue));
  });
  HAMI_HOST_ENTRY(host, queue_push, [](const hami_value* queue, const hami_value* value, std::int64_t until) {
    queue_of(*queue)->push(borrow(*value), until);
  });
  HAMI_HOST_ENTRY(host, queue_pop, [](const hami_value* queue, std::int64_t until, hami_value* out) {
    *out = release_to_abi(queue_of(*queue)->pop(until));
  });
}

// ---- Host functions: the store of the pipe.

namespace {

StoreId id_of(const hami_value& raw) {
  const Value id = borrow(raw);
  if (id.kind() == Kind::kInt) return id.as_int();
  if (id.kind() == Kind::kStr) return id.as_text();
  throw Error(ErrorCode::kDataType, "ids and keys of the store must be int or str, got " + type_name(id));
}

// Calls `body` with the store, and translates the exceptions of the store.
template <class Body>
void with_store(const hami_context* context, Body&& body) {
  try {
    body(context->pipe->resources.store());
  } catch (const RequestStore::NotFound& error) {
    throw Error(ErrorCode::kNotFound, error.what());
  } catch (const RequestStore::AlreadyExists& error) {
    throw Error(ErrorCode::kAlreadyExists, error.what());
  }
}

hami_value value_of(const std::any& stored) {
  if (const Value* value = std::any_cast<Value>(&stored)) return release_to_abi(*value);
  throw Error(ErrorCode::kDataType, "the stored value belongs to the core and cannot be read by a plugin");
}

}  // namespace

void add_store(hami_host& host) {
  HAMI_HOST_ENTRY(host, store_create, [](hami_context* context, const hami_value* request) {
    with_store(context, [&](RequestStore& store) { store.create(id_of(*request)); });
  });
  HAMI_HOST_ENTRY(host, store_insert,
                  [](hami_context* context, const hami_value* request, const hami_value* key, const hami_value* value) {
    with_store(context, [&](RequestStore& store) { store.insert(id_of(*request), id_of(*key), borrow(*value)); });
  });
  HAMI_HOST_ENTRY(host, store_get,
                  [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    with_store(context, [&](RequestStore& store) { *out = value_of(store.at(id_of(*request), id_of(*key))); });
  });
  HAMI_HOST_ENTRY(host, store_take,
                  [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    with_store(context, [&](RequestStore& store) { *out = value_of(store.take(id_of(*request), id_of(*key))); });
  });
  HAMI_HOST_ENTRY(host, store_remove, [](hami_context* context, const hami_value* request) {
    with_store(context, [&](RequestStore& store) {
      const StoreId id = id_of(*request);
      if (!store.remove(id)) throw Error(ErrorCode::kNotFound, "the store has no request " + id.show());
    });
  });
}

}  // namespace hami
