// Delivers the completion of a request to Python: to the caller's dict, and to a callback, an asyncio task or a
// hami.Event.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "gil.hpp"
#include "pipe/call.hpp"
#include "sync/event.hpp"

namespace hami::bind {

// Removes `result` from a caller's dict. A request that restarts or fails has no `result`.
void remove_result(py::dict& request);
// Writes the keys that the backends set into the caller's dict. On failure removes `result` and returns the error.
// `failed`: the error of the request; null: it succeeded.
std::optional<Error> deliver(const Error* failed, const Dict& dict, py::dict& request);
inline std::optional<Error> deliver(const Call& call, std::size_t index, py::dict& request) {
  return deliver(call.error(index), call.dict(index), request);
}

// Receives the completion of one request that no thread waits for.
class Listener {
 public:
  // For Pipe.submit. `callback` is callback(exception or None), or null.
  Listener(py::dict request, py::object callback, Ref<Event> event)
      : request_(std::move(request)), callback_(std::move(callback)), event_(std::move(event)) {}
  // For Pipe.submit_from_loop, on the thread of the event loop.
  Listener(py::dict request, py::object completion_queue, py::object awaitable, Ref<Event> event)
      : request_(std::move(request)),
        completion_queue_(std::move(completion_queue)),
        awaitable_(std::move(awaitable)),
        event_(std::move(event)) {}

  // Marks the end of the start call: from now on `complete` is never nested in it, even on the same thread.
  void started() noexcept { starting_thread_ = std::thread::id(); }
  // Runs once, on any thread.
  void complete(const Call& call) noexcept;
  void fail_event(const Error& error) noexcept;

 private:
  void notify_caller(const py::object& error);

  PyRef request_;
  PyRef callback_;
  PyRef completion_queue_;  // of the loop that awaitable_ belongs to
  PyRef awaitable_;
  std::atomic<std::thread::id> starting_thread_{std::this_thread::get_id()};
  Ref<Event> event_;
};

}  // namespace hami::bind
