// Something that will be done once: notified, or failed. One may wait for it on a thread, or be called.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "value/error.hpp"
#include "value/value.hpp"
#include "base/mutex.hpp"

namespace hami {

class Event final : public Object {
 public:
  // Runs without any lock held and must not throw.
  using Callback = std::function<void(const Event&)>;

  Event() noexcept : Object(Kind::kEvent) {}
  ~Event() override { deferred_destroy(std::move(value_)); }

  // Brings the outcome, and runs the callbacks before it returns. False, and nothing happens, if there is one already.
  bool notify(Value value = {}) noexcept { return finish({}, std::move(value)); }
  bool fail(Error error) noexcept { return finish(std::move(error), {}); }

  bool done() const noexcept;
  // The reason of failure; empty while it is not done and when all went well.
  std::optional<Error> error() const;
  // What it was notified with; None if there was nothing.
  Value value() const;

  // Waits until it is done, whatever the outcome; `wait_until` is false if that is not so at `moment`. Throws Error only
  // if the user wants the thread back.
  void wait() const { wait_until(kNever); }
  bool wait_until(Nanoseconds moment) const;

  // Each callback runs exactly once, in the order they came in, on the thread that brings the outcome; here and now if
  // there is one. What it holds is let go afterwards: a callback that holds this event keeps both until then.
  // The number is for `forget`; 0 if it ran at once.
  std::uint64_t on_done(Callback callback);
  // False if the callback has run, or is about to.
  bool forget(std::uint64_t number) noexcept;

  // For a collector of cycles: what the outcome holds and nobody else does, or null. Never waits. And lets it go.
  const Object* held_alone() const noexcept;
  void let_go() noexcept;

  // For who promises an outcome: true for the first caller, if there is no outcome yet.
  bool claim() noexcept;

 private:
  bool finish(std::optional<Error> error, Value value) noexcept;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool done_ HAMI_GUARDED_BY(mutex_) = false;
  bool claimed_ HAMI_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ HAMI_GUARDED_BY(mutex_);
  Value value_ HAMI_GUARDED_BY(mutex_);
  std::uint64_t last_number_ HAMI_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<std::uint64_t, Callback>> callbacks_ HAMI_GUARDED_BY(mutex_);
};

// Error(kDataType) if the value is no event. Valid while the value lives.
Event& as_event(const Value& value);

}  // namespace hami
