// Event: completes once, with a value or an error, after one or more completions. Threads can wait for it, callbacks can be registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "value/api.hpp"

namespace hami {

class Event final : public Object {
 public:
  // Runs without any lock held. It must not throw.
  using Callback = std::function<void(const Event&)>;

  // `count`: how many calls of `notify` and `fail` complete the event. With more than one it has no value, and the error
  // of the first failure.
  explicit Event(std::size_t count = 1) noexcept : Object(Kind::kEvent), count_(count), missing_(count) {}
  ~Event() override { deferred_destroy(std::move(value_)); }

  // Completes the event, or one of its counts, and runs the callbacks before it returns. False, without effect, if it is
  // complete already.
  bool notify(Value value = {}) noexcept { return finish({}, std::move(value)); }
  bool fail(Error error) noexcept { return finish(std::move(error), {}); }

  bool done() const noexcept;
  // The error; empty while the event is not complete, and after a success.
  std::optional<Error> error() const;
  // The value of `notify`; None if there was none.
  Value value() const;

  // Waits until the event is complete, with a value or an error; `wait_until` returns false if it is not at `moment`. Throws
  // Error only if interrupted.
  void wait() const { wait_until(kNever); }
  bool wait_until(Nanoseconds moment) const;

  // Each callback runs exactly once, in order of registration, on the thread that completes the event; here and now if the
  // event is complete. A callback is destroyed after it ran: one that holds this event keeps both alive until then.
  // Returns a number for `forget`; 0 if the callback ran at once.
  std::uint64_t on_done(Callback callback);
  // False if the callback has run or is about to run.
  bool forget(std::uint64_t number) noexcept;

  // For a garbage collector: the object that only this event's outcome holds, or null. Never waits.
  const Object* held_alone() const noexcept;
  // Drops the outcome.
  void clear_outcome() noexcept;

  // Reserves the right to complete the event: true for as many callers as its count, if the event is not complete.
  bool claim() noexcept;

 private:
  bool finish(std::optional<Error> error, Value value) noexcept;

  const std::size_t count_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::size_t missing_ HAMI_GUARDED_BY(mutex_);  // completions until it is done
  std::size_t claimed_ HAMI_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ HAMI_GUARDED_BY(mutex_);
  Value value_ HAMI_GUARDED_BY(mutex_);
  std::uint64_t last_number_ HAMI_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<std::uint64_t, Callback>> callbacks_ HAMI_GUARDED_BY(mutex_);
};

// Error(kDataType) if the value is not an event. The result is valid while the value exists.
Event& as_event(const Value& value);

}  // namespace hami
