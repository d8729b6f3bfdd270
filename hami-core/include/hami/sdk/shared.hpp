// Objects that outlive one request: events, queues of the pipe, and its store.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "hami/sdk/value.hpp"

namespace hami {
inline namespace sdk {

// For `until`, which is in nanoseconds of host().clock_now: no limit.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// An event completes once, with a value or an error. Copies refer to the same event.
class Event {
 public:
  using Callback = std::function<void(const Event&)>;

  Event() { check(host().event_new(&value_.raw())); }
  // If the value is not an event, the first call that uses it throws Error(HAMI_DATA_TYPE).
  explicit Event(Value value) noexcept : value_(std::move(value)) {}
  operator const Value&() const noexcept { return value_; }

  // Completes the event. Returns false, without effect, if it is already complete.
  bool notify(const Value& value = {}) const {
    std::int32_t first = 0;
    check(host().event_notify(&value_.raw(), &value.raw(), &first));
    return first != 0;
  }
  bool fail(const Error& error) const {
    std::int32_t first = 0;
    check(host().event_fail(&value_.raw(), error.copy(), &first));
    return first != 0;
  }
  bool is_done() const noexcept { return host().event_is_done(&value_.raw()) != 0; }
  // Waits for the event and returns its value. Throws its error, or Error(HAMI_DEADLINE_EXCEEDED).
  Value wait(std::int64_t until = kNever) const {
    Value value;
    check(host().event_wait(&value_.raw(), until, &value.raw()));
    return value;
  }
  // Runs the callback once, on the thread that completes the event; immediately, if it is already complete. Exceptions of the
  // callback are dropped.
  void on_done(Callback callback) const {
    auto owned = std::make_unique<Callback>(std::move(callback));
    check(host().event_on_done(&value_.raw(), run, owned.release(),
                               [](void* data) { delete static_cast<Callback*>(data); }));
  }

 private:
  static void run(void* data, const hami_value* event) {
    host().error_free(guard([&] { (*static_cast<Callback*>(data))(Event(Value::share(*event))); }));
  }

  Value value_;
};

// A queue of the pipe, which its backends share.
class Queue {
 public:
  static Queue find(hami_context* context, std::string_view name) {
    Value value;
    check(host().queue_find(context, name.data(), name.size(), &value.raw()));
    return Queue(std::move(value));
  }
  explicit Queue(Value value) noexcept : value_(std::move(value)) {}
  operator const Value&() const noexcept { return value_; }

  // Waits for capacity until `until`, then throws Error(HAMI_DEADLINE_EXCEEDED).
  void push(const Value& value, std::int64_t until = kNever) const {
    check(host().queue_push(&value_.raw(), &value.raw(), until));
  }
  // Waits for a value until `until`, then throws Error(HAMI_DEADLINE_EXCEEDED).
  Value pop(std::int64_t until = kNever) const {
    Value value;
    check(host().queue_pop(&value_.raw(), until, &value.raw()));
    return value;
  }

 private:
  Value value_;
};

// The pipe's store: request -> key -> value; request and key are int or str.
class Store {
 public:
  explicit Store(hami_context* context) noexcept : context_(context) {}

  void create(const Value& request) const { check(host().store_create(context_, &request.raw())); }
  void insert(const Value& request, const Value& key, const Value& value) const {
    check(host().store_insert(context_, &request.raw(), &key.raw(), &value.raw()));
  }
  // Error(HAMI_NOT_FOUND) if the request or the key does not exist.
  Value get(const Value& request, const Value& key) const {
    Value value;
    check(host().store_get(context_, &request.raw(), &key.raw(), &value.raw()));
    return value;
  }
  // Like get, and erases the value. If several threads take one value, one of them gets it.
  Value take(const Value& request, const Value& key) const {
    Value value;
    check(host().store_take(context_, &request.raw(), &key.raw(), &value.raw()));
    return value;
  }
  void remove(const Value& request) const { check(host().store_remove(context_, &request.raw())); }

 private:
  hami_context* context_;
};

}  // namespace sdk
}  // namespace hami
