// Delivers the completion of a request to Python, on the thread that completes it.
#include "listener.hpp"

#include "awaitable.hpp"
#include "completion_batch.hpp"
#include "errors.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// Encloses the completion of an event. Its callbacks may wait; those of the core do so without Python.
struct EventCallbacksScope {
  const FlushWakeupsScope flushed;
  const BlockingScope blocking;
};

py::handle put_name;

}  // namespace

void make_put_name() { put_name = interned("put"); }

void remove_result(py::dict& request) noexcept {
  if (PyDict_DelItem(request.ptr(), result_key().ptr()) != 0) PyErr_Clear();
}

std::optional<Error> deliver(const Error* failed, const Dict& dict, py::dict& request) noexcept {
  std::optional<Error> error;
  if (failed) {
    error = *failed;
  } else {
    try {
      write_back(dict, request);
    } catch (...) {  // by a dict subclass, by the parts given to hami.batching.scatter, or for lack of memory
      error = current_python_error();
    }
  }
  if (error) remove_result(request);
  return error;
}

namespace {

FreeThreadedMutex postponed_mutex;
// The latest one first. Leaked intentionally: it must not run Python after the interpreter ended.
std::shared_ptr<Listener>& postponed HAMI_GUARDED_BY(postponed_mutex) = *new std::shared_ptr<Listener>;
// Every call asks it; threads that call at once would wait for each other at the mutex.
std::atomic<bool> has_postponed{false};

}  // namespace

void Listener::complete(const Call& call) noexcept {
  std::optional<Error> error;
  {
    const HoldGil gil;
    py::dict request = py::reinterpret_borrow<py::dict>(request_.get());
    error = error_ = deliver(call, 0, request);
    if (!notify()) postpone();
    deliver_postponed();
    run_pending_decrefs();
  }
  if (error) return fail_event(*error);
  if (!event_) return;
  const EventCallbacksScope scope;
  event_->notify(*call.dict(0).find(kResult));
}

// False: out of memory.
bool Listener::notify() noexcept {
  const bool notified = complete_reliably("hami: the completion of a submitted request", memory_timeout(0),
                                          [&] { notify_caller(error_ ? to_exception(*error_) : py::none()); });
  if (!notified) return false;
  for (PyRef* held : {&request_, &callback_, &completion_queue_, &awaitable_}) *held = PyRef();
  return true;
}

void Listener::postpone() noexcept {
  const FreeThreadedLock lock(postponed_mutex);
  next_postponed_ = std::exchange(postponed, shared_from_this());
  has_postponed.store(true, std::memory_order_relaxed);
}

bool Listener::deliver_postponed() noexcept {
  const auto take = []() -> std::shared_ptr<Listener> {
    if (!has_postponed.load(std::memory_order_relaxed)) return nullptr;
    const FreeThreadedLock lock(postponed_mutex);
    std::shared_ptr<Listener> first = postponed;
    if (first) postponed = std::move(first->next_postponed_);
    has_postponed.store(postponed != nullptr, std::memory_order_relaxed);
    return first;
  };
  while (const std::shared_ptr<Listener> listener = take()) {
    if (listener->notify()) continue;
    listener->postpone();
    return false;
  }
  return true;
}

void Listener::notify_caller(const py::object& error) {
  if (awaitable_) {
    const py::handle awaitable = awaitable_.get(), queue = completion_queue_.get();
    set_outcome(awaitable, error);
    const bool completed_inline = starting_thread_ == std::this_thread::get_id();
    if (completed_inline) return settle_inline(awaitable);
    call_python(py::getattr(queue, put_name), awaitable);
    wake_after_batch(queue);
  } else if (callback_) {
    const FlushWakeupsScope flushed;
    call_python(callback_.get(), error);
  }
}

void fail_with(Event& event, const Error& error) noexcept {
  const EventCallbacksScope scope;
  event.fail(error);
}

}  // namespace hami::bind
