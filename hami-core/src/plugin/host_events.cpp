// Host functions: events.
#include "sync/event.hpp"

#include "observe/log.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"

namespace hami {
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

}  // namespace hami
