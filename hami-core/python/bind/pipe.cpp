// hami._core.Pipe: calls, submissions and statistics of a pipe from Python.
#include "pipe.hpp"

#include <pybind11/stl.h>

#include <algorithm>

#include "awaitable.hpp"
#include "backend/api.hpp"
#include "config.hpp"
#include "core_objects.hpp"
#include "describe.hpp"
#include "errors.hpp"
#include "greenlets.hpp"
#include "listener.hpp"
#include "load.hpp"
#include "native_caller.hpp"
#include "pipe/api.hpp"
#include "statistics.hpp"
#include "submitted.hpp"
#include "telemetry/api.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// The event under the request's key `event`, claimed for this request. Error(kRequest) if it is done or claimed
// already.
Ref<Event> claim_event(const Value& given) {
  if (given.kind() != Kind::kEvent)
    throw Error(ErrorCode::kDataType,
                "the key \"event\" of a request must be a hami.Event, got " + std::string(py::repr(to_python(given))));
  Event& event = as_event(given);
  if (!event.claim())
    throw Error(ErrorCode::kRequest,
                "the hami.Event of the request is done or belongs to another request; use a new one for each request");
  return Ref<Event>(&event);
}

// The argument `priority` of a call as the value of the key `priority`; empty for None. Error as for the key.
std::optional<Value> priority_of(const py::object& given) {
  if (given.is_none()) return std::nullopt;
  Dict dict;
  dict.enter(std::string(kPriority), to_value(given));
  return Value(std::int64_t{*declared_priority(dict)});
}

// Declared again, because the header of CPython 3.11 gives it the linkage of C++.
namespace c {
extern "C" int PyTraceMalloc_Untrack(unsigned int domain, std::uintptr_t pointer);
}  // namespace c

// Whether a thread needs the GIL to start: tracemalloc takes it for each allocation, also for that of a PyThreadState. Without a
// GIL, a new thread may stop all threads that hold their thread states. A caller of the core, which may wait until a thread has
// started, must hold neither.
bool threads_need_gil() noexcept {
#ifdef Py_GIL_DISABLED
  return true;
#else
  return c::PyTraceMalloc_Untrack(0, 0) != -2;  // -2: it is not tracing
#endif
}

// A running pipe for its callers, who hold it while they use it. When the last one leaves, `left` completes.
struct Running {
  explicit Running(std::shared_ptr<PipeState> pipe) : state(std::move(pipe)), left(make_object<Event>()) {}
  ~Running() {
    left->notify();
    withdraw(*published);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  const std::shared_ptr<PipeState> state;
  const Ref<Event> left;
  // For `hami top`, until the pipe is closed.
  const std::shared_ptr<PublishedPipe> published = std::make_shared<PublishedPipe>();
};

class PyPipe {
 public:
  PyPipe(const PipeConfig& config, const std::map<std::string, Ref<Queue>>& queues) {
    check_may_block();
    {
      const ReleaseGil released;
      running_ = std::make_shared<Running>(PipeState::build(config, queues));
    }
    show(*running_);
  }
  // Closes a pipe that the program did not close: submitted requests finish first.
  ~PyPipe() {
    if (!running_ || closed()) return;  // its construction failed, or another pipe took it
    if (!Worker::on_some_worker() && on_entered_greenlet() && may_block()) {
      try {
        close_within(*running_->state, PipeShutdown::kCloseTimeout);
      } catch (py::error_already_set& raised) {
        if (!raise_later(raised)) raised.discard_as_unraisable("hami: closing a pipe");
      } catch (const std::exception&) {  // no memory for the exception
        PyErr_NoMemory();
        PyErr_WriteUnraisable(nullptr);
      }
      return;
    }
    const ReleaseGil released;
    // This thread belongs to a pipe and cannot join itself, or it may not enter the core.
    running_->state->close_elsewhere(PipeShutdown::kCloseTimeout);
  }

  // Runs one request. Raises its error, after removing `result`. Returns at once if the request has an event.
  void call(py::dict& request, const py::object& timeout, const py::object& priority) {
    check_may_block();
    run_postponed();
    const Nanoseconds limit = from_seconds(timeout);
    Prepared prepared = prepare(request, priority_of(priority));
    if (prepared.event) return start_with_event(std::move(prepared), request, limit);
    std::vector<Dict> dicts(1);
    dicts.front() = std::move(prepared.dict);
    const Ref<Call> call = run(*in_use(), std::move(dicts), limit);
    if (const std::optional<Error> error = deliver(*call, 0, request)) raise(*error);
  }

  // Runs several requests. Returns None or an exception for each. Requests with an event are only started.
  py::list call_many(const std::vector<py::dict>& requests, const py::object& timeout, const py::object& priority) {
    check_may_block();
    run_postponed();
    const Nanoseconds limit = from_seconds(timeout);
    const std::optional<Value> default_priority = priority_of(priority);
    std::vector<Dict> dicts;
    std::vector<std::size_t> waiting;  // indices of the requests in `dicts`
    py::list errors;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      py::dict request = requests[i];
      errors.append(py::none());
      try {
        Prepared prepared = prepare(request, default_priority);
        if (prepared.event) {
          start_with_event(std::move(prepared), request, limit);
        } else {
          dicts.push_back(std::move(prepared.dict));
          waiting.push_back(i);
        }
      } catch (const Interrupted&) {
        throw;
      } catch (...) {
        errors[i] = to_exception(current_python_error());
      }
    }
    if (waiting.empty()) return errors;
    const Ref<Call> call = run(*in_use(), std::move(dicts), limit);
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      py::dict request = requests[waiting[i]];
      if (const std::optional<Error> error = deliver(*call, i, request)) errors[waiting[i]] = to_exception(*error);
    }
    return errors;
  }

  // Starts one request and returns a handle for cancel() and wait_if_nested(). callback(exception or None) is called on
  // completion, on any thread, and the request's event completes too. While the node's queue is full, this waits if
  // `may_wait`; otherwise the request waits.
  py::object submit(py::dict request, const py::object& timeout, py::object callback, bool may_wait,
                    const py::object& priority) {
    check_may_block();
    const Nanoseconds limit = from_seconds(timeout);
    const auto listener = std::make_shared<Listener>(request, std::move(callback));
    py::object handle = make_handle();
    const InlinePolicy policy = may_wait ? InlinePolicy::kNonBlocking : InlinePolicy::kEventLoop;
    put_in(handle, start_with_listener(listener, prepare(request, priority_of(priority)), limit, policy));
    return handle;
  }

  // Starts one request for a task of the event loop on this thread; never waits. A completion on another thread calls
  // completion_queue.put(awaitable) and then completion_queue.wake(), once per batch of completions. An error of the
  // start is raised by the await.
  py::object submit_from_loop(py::dict request, const py::object& timeout, py::object completion_queue,
                              const py::object& loop, const py::object& priority) {
    check_greenlet();
    const Nanoseconds limit = from_seconds(timeout);
    py::object awaitable = make_awaitable(loop);
    try {
      const auto listener = std::make_shared<Listener>(request, std::move(completion_queue), awaitable);
      Prepared prepared = prepare(request, priority_of(priority));
      set_call(awaitable, *start_with_listener(listener, std::move(prepared), limit, InlinePolicy::kEventLoop));
    } catch (...) {
      set_outcome(awaitable, to_exception(current_python_error()));
      settle_inline(awaitable);
    }
    return awaitable;
  }

  std::vector<std::string> close(const py::object& timeout) {
    check_may_block();
    {
      const FreeThreadedLock lock(mutex_);
      closed_ = true;
    }
    const std::shared_ptr<Running> running = in_use();
    std::vector<std::string> abandoned = close_within(*running->state, from_seconds(timeout));
    withdraw(*running->published);
    return abandoned;
  }

  bool finish(const py::object& timeout) {
    check_may_block();
    const std::shared_ptr<Running> running = in_use();
    const Nanoseconds limit = from_seconds(timeout);
    const ReleaseGil released;
    return running->state->finish(limit);
  }

  void close_in_background() { in_use()->state->close_in_background(); }

  bool closed() const {
    const FreeThreadedLock lock(mutex_);
    return closed_ || running_->state->closed();
  }

  // New requests go to the pipe of `other`, whose place is empty afterwards. Then closes the old pipe as `close` does, after the
  // requests that callers are about to start.
  std::vector<std::string> replace(PyPipe& other, const py::object& timeout) {
    check_may_block();
    const Nanoseconds limit = from_seconds(timeout);
    const Nanoseconds until = after(now(), limit);
    std::shared_ptr<Running> old;
    {
      const FreeThreadedLock lock(mutex_);
      if (closed_ || running_->state->closed()) throw Error::pipe_closed();
      old = std::exchange(running_, std::exchange(other.running_, nullptr));
      if (native_caller_) native_caller_->set_pipe(held(running_));
    }
    const std::shared_ptr<PipeState> state = old->state;
    const Ref<Event> left = old->left;
    old = nullptr;
    try {
      left->wait_until(until);
    } catch (...) {  // interrupted
      state->close_elsewhere(PipeShutdown::kCloseTimeout);
      throw;
    }
    return close_within(*state, until == kNever ? kNever : std::max<Nanoseconds>(0, until - now()));
  }

  // The same object for each call, because it follows `replace`.
  py::capsule native_caller() {
    const FreeThreadedLock lock(mutex_);
    if (!running_) throw Error::pipe_closed();
    if (!native_caller_) native_caller_ = make_counted<NativeCaller>(held(running_));
    return to_capsule(native_caller_);
  }

  Ref<Queue> queue(const std::string& name) const { return state()->context().resources.queue_by_name(name); }
  std::shared_ptr<RequestStore> store() const { return state()->context().resources.shared_store(); }

  py::dict describe() const { return description_of(*state()); }

  void set_label(std::string label) {
    const std::shared_ptr<Running> running = in_use();
    if (!running) throw Error::pipe_closed();
    const ReleaseGil released;
    hami::set_label(*running->published, std::move(label));
  }

  // Runs a benchmark: LoadSpec says what the arguments mean.
  py::dict load(const py::list& requests, std::size_t clients, std::size_t per_call, std::size_t warmup,
                const std::optional<std::uint64_t>& calls, const py::object& duration,
                const std::vector<double>& arrivals, const py::object& timeout, const py::object& objective,
                std::uint64_t seed) {
    check_may_block();
    run_postponed();
    LoadSpec spec;
    spec.clients = clients;
    spec.per_call = per_call;
    spec.warmup = warmup;
    spec.calls = calls.value_or(UINT64_MAX);
    spec.duration = from_seconds(duration);
    for (const double arrival : arrivals) spec.arrivals.push_back(from_milliseconds(arrival * 1e3));
    spec.timeout = from_seconds(timeout);
    spec.objective = from_seconds(objective);
    spec.seed = seed;
    return run_load(state(), requests, std::move(spec));
  }

  // Whether a backend of its configuration is one in Python.
  bool uses_python() const {
    const std::shared_ptr<PipeState> pipe = state();
    const auto in = [](const Explanation::Part& part) {
      return std::any_of(part.backends.begin(), part.backends.end(),
                         [](const ExplainedBackend& backend) { return backend.uses_python; });
    };
    const Explanation& all = pipe->explanation();
    return in(all.entry) || std::any_of(all.nodes.begin(), all.nodes.end(), in);
  }

  py::dict stats() const { return stats_of(*state()); }
  py::dict remarks() const { return remarks_of(*state()); }

 private:
  // Lets `hami top` show the pipe. Without memory for that it is not shown.
  static void show(Running& running) noexcept {
    try {
      const PipeState& state = *running.state;
      *running.published = {
          to_json(description_of(state)), state.opened_at(), &state.stats(), &state.times(), &state.counters(), {}};
      const ReleaseGil released;
      publish(running.published);
    } catch (...) {  // no memory, as said above
      PyErr_Clear();
    }
  }

  static std::vector<std::string> close_within(PipeState& state, Nanoseconds timeout) {
    std::vector<std::string> abandoned;
    {
      const ReleaseGil released;
      abandoned = state.close(timeout);
    }
    if (const auto interrupted = take_stored_interrupt()) raise(with_abandoned(*interrupted, abandoned));
    return abandoned;
  }

  // What other threads left for a thread with the GIL.
  static void run_postponed() noexcept {
    run_pending_decrefs();
    Listener::deliver_postponed();
  }

  struct Prepared {
    Dict dict;
    Ref<Event> event;  // null if the request has none
  };

  // Takes a snapshot of the request, and removes a stale `result` from the caller's dict. `priority`: if it has none.
  static Prepared prepare(py::dict& request, const std::optional<Value>& priority) {
    Prepared prepared;
    try {
      prepared.dict = snapshot(request);
    } catch (...) {
      remove_result(request);
      throw;
    }
    if (prepared.dict.contains(kResult)) remove_result(request);
    if (priority) {
      Value* const own = prepared.dict.find(kPriority);
      if (!own) prepared.dict.enter(std::string(kPriority), *priority);
      if (own && own->is_none()) *own = *priority;
    }
    if (const Value* given = prepared.dict.find(kEvent)) prepared.event = claim_event(*given);
    return prepared;
  }

  // Keeps the GIL, unless a thread needs it to start: under contention, reacquiring it takes long. The core releases it if it has
  // to wait.
  Ref<Call> start_with_listener(const std::shared_ptr<Listener>& listener, Prepared prepared, Nanoseconds limit,
                                InlinePolicy policy) {
    run_postponed();
    listener->set_event(std::move(prepared.event));
    try {
      Ref<Call> call = start(*in_use(), std::move(prepared.dict), limit, listener, policy);
      listener->started();
      return call;
    } catch (...) {
      const Error error = current_error();
      listener->fail_event(error);
      throw error;
    }
  }

  // Starts a request that has an event. All its errors, also that the pipe is closed, go to the event.
  void start_with_event(Prepared prepared, py::dict& request, Nanoseconds limit) {
    const Ref<Event> event = prepared.event;
    try {
      const auto listener = std::make_shared<Listener>(request, py::object());
      listener->set_event(event);
      const std::shared_ptr<Running> running = in_use();
      const ReleaseGil released;
      launch(*running, std::move(prepared.dict), limit, listener, InlinePolicy::kNonBlocking);
    } catch (const Interrupted&) {  // the event has failed already
      throw;
    } catch (...) {
      fail_with(*event, current_error());
    }
  }

  static Ref<Call> start(const Running& running, Dict dict, Nanoseconds limit,
                         const std::shared_ptr<Listener>& listener, InlinePolicy policy) {
    if (!threads_need_gil()) return launch(running, std::move(dict), limit, listener, policy);
    const ReleaseGil released;
    return launch(running, std::move(dict), limit, listener, policy);
  }

  static Ref<Call> launch(const Running& running, Dict dict, Nanoseconds limit,
                          const std::shared_ptr<Listener>& listener, InlinePolicy policy) {
    std::vector<Dict> dicts;
    dicts.push_back(std::move(dict));
    return running.state->start(std::move(dicts), limit, policy, [listener](Call& call) { listener->complete(call); });
  }

  static Ref<Call> run(const Running& running, std::vector<Dict> dicts, Nanoseconds limit) {
    PipeState& state = *running.state;
    if (state.non_blocking())  // takes microseconds; a wait releases the GIL, as does the start of an instance's thread
      return state.run(std::move(dicts), limit);
    const ReleaseGil released;
    return state.run(std::move(dicts), limit);
  }

  // The pipe, for a caller: `replace` waits for its end.
  static std::shared_ptr<PipeState> held(const std::shared_ptr<Running>& running) {
    return {running, running->state.get()};
  }
  std::shared_ptr<Running> in_use() const {
    const FreeThreadedLock lock(mutex_);
    return running_;
  }
  std::shared_ptr<PipeState> state() const { return in_use()->state; }

  mutable FreeThreadedMutex mutex_;
  std::shared_ptr<Running> running_;  // null: another pipe took it
  Ref<NativeCaller> native_caller_;
  bool closed_ = false;
};

// call(request, timeout, priority), on the way of every request: a method as CPython defines them. pybind11 would add a
// tenth to the instructions of the call.
PyObject* call_method(PyObject* self, PyObject* const* given, Py_ssize_t count) noexcept {
  try {
    if (count != 3 || !PyDict_Check(given[0])) throw py::type_error("call() takes a dict, timeout and priority");
    auto* const pipe = object_in<PyPipe>(self);
    if (!pipe) throw py::type_error("call() takes a pipe that is built");
    auto request = py::reinterpret_borrow<py::dict>(given[0]);
    pipe->call(request, py::reinterpret_borrow<py::object>(given[1]), py::reinterpret_borrow<py::object>(given[2]));
    return request.release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyMethodDef call_definition = {
    "call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_method)), METH_FASTCALL,
    "Run one request and return the same dict, with `result`. Raises the error of the request."};

}  // namespace

void register_pipe(py::module_& module) {
  make_result_key();
  make_put_name();
  register_awaitable(module);
  register_submitted(module);
  module.def("status", [] {
    const ReleaseGil released;  // another thread may hold the lock and need the GIL
    return status_json();
  }, "Return the JSON that `hami top` reads.");
  const auto make = [](const py::object& config, const std::map<std::string, Ref<Queue>>& queues) {
    return std::make_unique<PyPipe>(config_of(config), queues);
  };
  py::class_<PyPipe> cls(module, "Pipe", "A built pipe. Use hami.Pipe.");
  cls.def(py::init(make), py::arg("config"), py::arg("queues") = std::map<std::string, Ref<Queue>>())
      .def("call_many", &PyPipe::call_many, py::arg("requests"), py::arg("timeout") = py::none(),
           py::arg("priority") = py::none(), "Run several requests and return None or an exception for each.")
      .def("submit", &PyPipe::submit, py::arg("request"), py::arg("timeout"), py::arg("callback"),
           py::arg("may_wait") = true, py::arg("priority") = py::none(),
           "Start one request and return a handle. `callback(exception or None)` runs on completion, on any thread.")
      .def("submit_from_loop", &PyPipe::submit_from_loop, py::arg("request"), py::arg("timeout"),
           py::arg("completion_queue"), py::arg("loop"), py::arg("priority") = py::none(),
           "Start one request from the thread of an asyncio loop and return an Awaitable. Never blocks.")
      .def("close", &PyPipe::close, py::arg("timeout"),
           "Close the pipe and return the names of the backends that did not finish within `timeout` seconds.")
      .def(
          "finish", &PyPipe::finish, py::arg("timeout"),
          "Reject new requests and return whether the others ended within `timeout` seconds; close() is still to come.")
      .def("close_in_background", &PyPipe::close_in_background,
           "Let a thread close the pipe without waiting for requests; close() waits for it.")
      .def("replace", &PyPipe::replace, py::arg("other"), py::arg("timeout"),
           "Take the place of this pipe's backends by those of another, which is empty afterwards; close the old ones.")
      .def_property_readonly("closed", &PyPipe::closed, "Whether close() was called.")
      .def("native_caller", &PyPipe::native_caller, "Return a capsule by which native code calls the pipe.")
      .def("uses_python", &PyPipe::uses_python, "Return whether a backend of the pipe is one in Python.")
      .def("queue", &PyPipe::queue, py::arg("name"), "Return a queue of the pipe by name.")
      .def_property_readonly("store", &PyPipe::store, "The store of the pipe.")
      .def("describe", &PyPipe::describe, "Return the nodes with their backends, parameters and edges.")
      .def("set_label", &PyPipe::set_label, py::arg("label"), "Name the pipe for hami top.")
      .def("load", &PyPipe::load, py::arg("requests"), py::kw_only(), py::arg("clients") = 1, py::arg("per_call") = 1,
           py::arg("warmup") = 0, py::arg("calls") = py::none(), py::arg("duration") = py::none(),
           py::arg("arrivals") = std::vector<double>(), py::arg("timeout") = py::none(),
           py::arg("objective") = py::none(), py::arg("seed") = 0, "Run a benchmark and return what was measured.")
      .def("stats", &PyPipe::stats, "Return the statistics of each node, by name.")
      .def("remarks", &PyPipe::remarks, "Return what the backends of each node say about it, by name.");
  PyObject* const call = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), &call_definition);
  if (!call) throw py::error_already_set();
  cls.attr("call") = py::reinterpret_steal<py::object>(call);
  module.def(
      "deliver_postponed",
      [] {
    if (on_entered_greenlet() && !Listener::deliver_postponed()) throw std::bad_alloc();
  },
      "Complete the submitted requests whose callbacks could not run for lack of memory. Raises MemoryError if they still "
      "cannot.");
  module.def("on_core_thread", &Worker::on_some_worker, "Return whether hami-core created the calling thread.");
  module.def(
      "wait_for_detached_inits",
      [](const py::object& timeout) {
    const Nanoseconds until = deadline_after(timeout);
    const ReleaseGil released;
    return wait_for_detached_inits(until);
  }, py::arg("timeout"),
      "Wait at most `timeout` seconds for backend inits that an interrupted construction left running. Returns False "
      "if some "
      "still run.");
}

}  // namespace hami::bind
