// Delivers the completion of a request to Python, on the thread that completes it.
#include "listener.hpp"

#include "awaitable.hpp"
#include "completion_batch.hpp"
#include "errors.hpp"
#include "sync/blocking.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// Encloses the completion of an event. Its callbacks may wait; those of the core do so without Python.
struct EventCallbacksScope {
  const FlushWakeupsScope flushed;
  const BlockingScope blocking;
};

}  // namespace

void remove_result(py::dict& request) {
  if (PyDict_DelItemString(request.ptr(), "result") != 0) PyErr_Clear();
}

std::optional<Error> deliver(const Error* failed, const Dict& dict, py::dict& request) {
  std::optional<Error> error;
  if (failed) {
    error = *failed;
  } else {
    try {
      write_back(dict, request);
    } catch (py::error_already_set& raised) {  // by a dict subclass, or by the parts given to hami.scatter
      error = from_python(raised);
    } catch (const Error& invalid) {
      error = invalid;
    }
  }
  if (error) remove_result(request);
  return error;
}

void Listener::complete(const Call& call) noexcept {
  std::optional<Error> error;
  {
    const HoldGil gil;
    py::dict request = py::reinterpret_borrow<py::dict>(request_.get());
    error = deliver(call, 0, request);
    complete_reliably("hami: the completion of a submitted request",
                      [&] { notify_caller(error ? to_exception(*error) : py::none()); });
    for (PyRef* held : {&request_, &callback_, &completion_queue_, &awaitable_}) *held = PyRef();
    run_pending_decrefs();
  }
  if (error) return fail_event(*error);
  if (!event_) return;
  const EventCallbacksScope scope;
  event_->notify(*call.dict(0).find(kResult));
}

void Listener::notify_caller(const py::object& error) {
  if (awaitable_) {
    const py::handle awaitable = awaitable_.get(), queue = completion_queue_.get();
    set_outcome(awaitable, error);
    const bool completed_inline = starting_thread_ == std::this_thread::get_id();
    if (completed_inline) return settle_inline(awaitable);
    static const py::handle put = interned("put");
    call_python(py::getattr(queue, put), awaitable);
    wake_after_batch(queue);
  } else if (callback_) {
    const FlushWakeupsScope flushed;
    call_python(callback_.get(), error);
  }
}

void Listener::fail_event(const Error& error) noexcept {
  if (!event_) return;
  const EventCallbacksScope scope;
  event_->fail(error);
}

}  // namespace hami::bind
