// Outcomes on their way back to Python: to the caller's dict, and to who hears of them.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "sync/event.hpp"
#include "gil.hpp"
#include "pipe/call.hpp"

namespace hami::bind {

// A request that is started again, or has failed, has no `result`.
void forget_result(py::dict& request);
// Brings an outcome to the caller's dict: what was written goes back, or its error is given and there is no `result`.
std::optional<Error> deliver(const Call& call, std::size_t index, py::dict& request);

// Who hears of the outcome of a request for which nobody waits on a thread: the caller of submit, a task, an event, or more
// than one of them.
class Listener {
 public:
  // done(exception or None), or null.
  Listener(py::dict request, py::object done, Ref<Event> event)
      : request_(std::move(request)), done_(std::move(done)), event_(std::move(event)) {}
  // For a task of the event loop that the calling thread runs.
  Listener(py::dict request, py::object outcomes, py::object awaitable, Ref<Event> event)
      : request_(std::move(request)), outcomes_(std::move(outcomes)), awaitable_(std::move(awaitable)), event_(std::move(event)) {}

  // The thread that made it has started the request, and may from now on be any thread.
  void started() noexcept { starting_on_ = std::thread::id(); }
  // Runs once, on whatever thread brings the outcome.
  void tell(const Call& call) noexcept;
  void fail_event(const Error& error) noexcept;

 private:
  void tell_caller(const py::object& error);

  PyRef request_;
  PyRef done_;
  PyRef outcomes_;  // of the loop that answer_ belongs to
  PyRef awaitable_;
  std::atomic<std::thread::id> starting_on_{std::this_thread::get_id()};
  Ref<Event> event_;
};

}  // namespace hami::bind
