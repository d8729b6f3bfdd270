// Listener: one outcome, told once, on whatever thread brings it.
#include "listener.hpp"

#include "errors.hpp"
#include "telling.hpp"
#include "values.hpp"

namespace hami::bind {

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
    } catch (py::error_already_set& raised) {  // the dict is of a class that does not take it
      failed = from_python(raised);
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
    try {
      tell_caller(error ? to_exception(*error) : py::none());
    } catch (py::error_already_set& raised) {
      raised.discard_as_unraisable("hami: the completion of a submitted request");
    }
    for (PyRef* held : {&request_, &done_, &outcomes_, &future_}) *held = PyRef();
    drain_dropped();
    if (event_) wake_now();  // a callback of the event may wait for a task
  }
  if (error)
    fail_event(*error);
  else if (event_)
    event_->notify(*call.dict(0).find(kResult));
}

void Listener::tell_caller(const py::object& error) {
  if (future_) {
    const py::handle outcomes = outcomes_.get();
    const bool in_loop = std::this_thread::get_id() == started_by_;  // it ran at once
    call_python(outcomes.attr(in_loop ? "settle" : "put"), py::make_tuple(py::handle(future_.get()), error));
    if (!in_loop) wake_later(outcomes);
  } else if (done_) {
    wake_now();
    call_python(done_.get(), error);
  }
}

void Listener::fail_event(const Error& error) noexcept {
  if (event_) event_->fail(error);
}

}  // namespace hami::bind
