// Listener: one outcome, told once, on whatever thread brings it.
#include "listener.hpp"

#include "awaitable.hpp"
#include "sync/blocking.hpp"
#include "errors.hpp"
#include "completion_batch.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// While an event is told: its callbacks may wait, those of the core without Python.
struct EventScope {
  const FlushWakeupsScope interruption;
  const BlockingScope blocking;
};

}  // namespace

void forget_result(py::dict& request) {
  if (PyDict_DelItemString(request.ptr(), "result") != 0) PyErr_Clear();
}

std::optional<Error> deliver(const Call& call, std::size_t index, py::dict& request) {
  std::optional<Error> failed;
  if (const Error* error = call.error(index)) {
    failed = *error;
  } else {
    try {
      write_back(call.dict(index), request);
    } catch (py::error_already_set& raised) {  // the dict is of a class that does not take it, or there is no such part
      failed = from_python(raised);
    } catch (const Error& refused) {
      failed = refused;
    }
  }
  if (failed) forget_result(request);
  return failed;
}

void Listener::tell(const Call& call) noexcept {
  std::optional<Error> error;
  {
    const HoldGil gil;
    py::dict request = py::reinterpret_borrow<py::dict>(request_.get());
    error = deliver(call, 0, request);
    complete_reliably("hami: the completion of a submitted request",
                [&] { tell_caller(error ? to_exception(*error) : py::none()); });
    for (PyRef* held : {&request_, &done_, &outcomes_, &awaitable_}) *held = PyRef();
    drain_dropped();
  }
  if (error) return fail_event(*error);
  if (!event_) return;
  const EventScope scope;
  event_->notify(*call.dict(0).find(kResult));
}

void Listener::tell_caller(const py::object& error) {
  if (awaitable_) {
    const py::handle awaitable = awaitable_.get(), outcomes = outcomes_.get();
    set_outcome(awaitable, error);
    if (starting_on_ == std::this_thread::get_id()) return settle(awaitable);  // it ran at once
    static const py::handle put = interned("put");
    call_python(py::getattr(outcomes, put), awaitable);
    wake_after_batch(outcomes);
  } else if (done_) {
    const FlushWakeupsScope interruption;
    call_python(done_.get(), error);
  }
}

void Listener::fail_event(const Error& error) noexcept {
  if (!event_) return;
  const EventScope scope;
  event_->fail(error);
}

}  // namespace hami::bind
