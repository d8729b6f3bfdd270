// Delivers the completion of a request to Python: to the caller's dict, and to a callback, an asyncio task or a
// hami.Event.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "gil.hpp"
#include "pipe/api.hpp"

namespace hami::bind {

// Removes `result` from a caller's dict. A request that restarts or fails has no `result`.
void remove_result(py::dict& request) noexcept;
// Writes the keys that the backends set into the caller's dict. On failure removes `result` and returns the error.
// `failed`: the error of the request; null: it succeeded.
std::optional<Error> deliver(const Error* failed, const Dict& dict, py::dict& request) noexcept;
inline std::optional<Error> deliver(const Call& call, std::size_t index, py::dict& request) noexcept {
  return deliver(call.error(index), call.dict(index), request);
}

// Called once. A static variable of a function would make threads wait that keep their thread state, for which other
// threads may wait in free-threaded Python.
void make_put_name();

// Fails an event from a thread that may hold the GIL.
void fail_with(Event& event, const Error& error) noexcept;

// Receives the completion of one request that no thread waits for.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // For Pipe.submit. `callback` is callback(exception or None), or null.
  Listener(py::dict request, py::object callback) : request_(std::move(request)), callback_(std::move(callback)) {}
  // For Pipe.submit_from_loop, on the thread of the event loop.
  Listener(py::dict request, py::object completion_queue, py::object awaitable)
      : request_(std::move(request)),
        completion_queue_(std::move(completion_queue)),
        awaitable_(std::move(awaitable)) {}

  // The event of the request, before it starts. May be null.
  void set_event(Ref<Event> event) noexcept { event_ = std::move(event); }
  // Marks the end of the start call: from now on `complete` is never nested in it, even on the same thread.
  void started() noexcept { starting_thread_ = std::thread::id(); }
  // Runs once, on any thread. If memory runs out before the caller is notified, it is notified by the next completion or
  // deliver_postponed().
  void complete(const Call& call) noexcept;
  // Notifies the callers that could not be notified. False: still out of memory. Requires the GIL.
  static bool deliver_postponed() noexcept;
  void fail_event(const Error& error) noexcept {
    if (event_) fail_with(*event_, error);
  }

 private:
  bool notify() noexcept;
  void notify_caller(const py::object& error);
  void postpone() noexcept;

  PyRef request_;
  PyRef callback_;
  PyRef completion_queue_;  // of the loop that awaitable_ belongs to
  PyRef awaitable_;
  std::atomic<std::thread::id> starting_thread_{std::this_thread::get_id()};
  Ref<Event> event_;
  std::optional<Error> error_;  // of the request, once it is complete
  std::shared_ptr<Listener> next_postponed_;
};

}  // namespace hami::bind
