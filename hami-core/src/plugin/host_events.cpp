// Events for plugins: creation, completion and waiting.
#include "sync/event.hpp"

#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

// A new reference: the plugin may release the value while it waits.
Ref<Event> event_in(const hami_value& raw) { return Ref<Event>(&as_event(borrow(raw))); }

void tell(std::int32_t* first, bool was_first) noexcept {
  if (first) *first = was_first;
}

hami_error* fail_event(const hami_value* event, hami_error* error, std::int32_t* first) {
  hami_error* const wrong = guarded([&] {
    const Ref<Event> failing = event_in(*event);
    if (!error) throw Error(ErrorCode::kInvalidArgument, "an event fails with an error, got none");
    tell(first, failing->fail(error->error));
  });
  host_table().error_free(error);
  return wrong;
}

void wait_for(const Event& event, Nanoseconds until, hami_value& out) {
  if (!event.wait_until(until)) throw Error(ErrorCode::kDeadlineExceeded, "the event did not complete in time");
  if (const std::optional<Error> error = event.error()) throw *error;
  out = release_to_abi(event.value());
}

hami_error* on_done(const hami_value* event, void (*callback)(void*, const hami_value*), void* data,
                    void (*release)(void*)) {
  return guarded([&] {
    const std::shared_ptr<void> held(data, release ? release : [](void*) {});
    event_in(*event)->on_done([callback, held](const Event& done) {
      const Value shown = Value::share(const_cast<Event&>(done));
      hami_value raw;
      std::memcpy(&raw, static_cast<const void*>(&shown), sizeof raw);
      callback(held.get(), &raw);
    });
  });
}

}  // namespace

void add_events(hami_host& host) {
  HAMI_HOST_ENTRY(host, event_new, [](hami_value* out) {
    return guarded([&] { *out = release_to_abi(Value::share(*make_object<Event>())); });
  });
  HAMI_HOST_ENTRY(host, event_notify, [](const hami_value* event, const hami_value* value, std::int32_t* first) {
    return guarded([&] { tell(first, event_in(*event)->notify(borrow(*value))); });
  });
  HAMI_HOST_ENTRY(host, event_fail, fail_event);
  HAMI_HOST_ENTRY(host, event_is_done, [](const hami_value* event) -> std::int32_t {
    std::int32_t done = 0;
    host_table().error_free(guarded([&] { done = event_in(*event)->done(); }));
    return done;
  });
  HAMI_HOST_ENTRY(host, event_wait, [](const hami_value* event, std::int64_t until, hami_value* out) {
    return guarded([&] { wait_for(*event_in(*event), until, *out); });
  });
  HAMI_HOST_ENTRY(host, event_on_done, on_done);
}

}  // namespace hami
