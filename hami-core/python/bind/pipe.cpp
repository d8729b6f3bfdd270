// hami._core.Pipe: the call from Python, and everything around it.
#include "pipe.hpp"

#include <pybind11/stl.h>

#include "awaitable.hpp"
#include "sync/worker.hpp"
#include "config.hpp"
#include "core_objects.hpp"
#include "errors.hpp"
#include "listener.hpp"
#include "pipe/pipe_state.hpp"
#include "backend/dedicated_thread.hpp"
#include "backend/pipe_context.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// The event under the request's key; it is then promised to this request and to no other.
Ref<Event> claimed_event(const Value& given) {
  if (given.kind() != Kind::kEvent)
    throw Error(ErrorCode::kDataType, "the key \"event\" of a request takes a hami.Event, got " +
                                          std::string(py::repr(to_python(given))));
  Event& event = as_event(given);
  if (!event.claim())
    throw Error(ErrorCode::kRequest, "the hami.Event of the request is done or belongs to another request; each takes a new one");
  return Ref<Event>(&event);
}

// A submitted request as Python holds it. Each makes one, and a capsule costs less than an object of a class.
constexpr const char* kCall = "hami.call";

py::object to_capsule(const Ref<Call>& call) {
  const auto let_go = [](PyObject* capsule) { static_cast<Call*>(PyCapsule_GetPointer(capsule, kCall))->release(); };
  PyObject* const made = PyCapsule_New(call.get(), kCall, let_go);
  if (!made) throw py::error_already_set();
  call->retain();  // until let_go
  return py::reinterpret_steal<py::object>(made);
}

Ref<Call> call_in(const py::object& capsule) {
  void* const call = PyCapsule_GetPointer(capsule.ptr(), kCall);
  if (!call) throw py::error_already_set();
  return Ref<Call>(static_cast<Call*>(call));
}

bool cancel(const py::object& capsule) {
  const Ref<Call> call = call_in(capsule);
  const ReleaseGil released;
  return call->give_up(Error(ErrorCode::kCancelled, "cancelled by its caller"));
}

void wait_inside(const py::object& capsule) {
  const Ref<Call> call = call_in(capsule);
  const ReleaseGil released;
  call->wait_inside();
}

class PyPipe {
 public:
  explicit PyPipe(const PipeConfig& config) {
    const ReleaseGil released;
    state_ = PipeState::build(config);
  }
  // A pipe that nobody closed ends like one that was: what was submitted is finished.
  ~PyPipe() {
    if (!state_ || state_->closed()) return;
    if (!Worker::on_some_worker()) {
      try {
        close_within(PipeShutdown::kCloseTimeout);
      } catch (py::error_already_set& raised) {
        if (!raise_later(raised)) raised.discard_as_unraisable("the end of a hami.Pipe");
      }
      return;
    }
    const ReleaseGil released;
    // The last reference went on a thread that cannot join itself. One that is kept would be missing in a fork.
    const auto closer = std::make_shared<Worker>("hami-closer");
    closer->post([closer, state = state_] { state->close(PipeShutdown::kCloseTimeout); });
  }

  // One request. Raises its error, after which it has no `result`. With an event it returns at once.
  py::dict call(py::dict request, const py::object& timeout) {
    drain_dropped();
    const Nanoseconds limit = from_seconds(timeout);
    Entered entered = enter(request);
    if (entered.event) {
      start(std::move(entered), request, limit);
      return request;
    }
    std::vector<Dict> dicts;
    dicts.push_back(std::move(entered.dict));
    const Ref<Call> call = run(std::move(dicts), limit);
    if (const std::optional<Error> error = deliver(*call, 0, request)) raise(*error);
    return request;
  }

  // Several requests: None or the exception for each. Those with an event are only started.
  py::list call_many(const std::vector<py::dict>& requests, const py::object& timeout) {
    drain_dropped();
    const Nanoseconds limit = from_seconds(timeout);
    std::vector<Dict> dicts;
    std::vector<std::size_t> waiting;  // the requests that dicts are of
    py::list outcomes;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      py::dict request = requests[i];
      outcomes.append(py::none());
      try {
        Entered entered = enter(request);
        if (entered.event) {
          start(std::move(entered), request, limit);
        } else {
          dicts.push_back(std::move(entered.dict));
          waiting.push_back(i);
        }
      } catch (const Interrupted&) {
        throw;
      } catch (const Error& error) {
        outcomes[i] = to_exception(error);
      }
    }
    if (waiting.empty()) return outcomes;
    const Ref<Call> call = run(std::move(dicts), limit);
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      py::dict request = requests[waiting[i]];
      if (const std::optional<Error> error = deliver(*call, i, request)) outcomes[waiting[i]] = to_exception(*error);
    }
    return outcomes;
  }

  // Starts one request; `done(exception or None)` is called once, on any thread. An event in it hears of it too. The
  // calling thread waits for room in the queue. What it gives is for cancel and wait_inside.
  py::object submit(py::dict request, const py::object& timeout, py::object done) {
    const Nanoseconds limit = from_seconds(timeout);
    Entered entered = enter(request);
    const auto listener = std::make_shared<Listener>(std::move(request), std::move(done), entered.event);
    return to_capsule(start_for(listener, std::move(entered.dict), limit, InlinePolicy::kNonBlocking));
  }

  // Starts one request for a task of the loop that runs on this thread, and never waits. The task's future is done by
  // outcomes.settle((future, exception or None)) if that is here, else outcomes.put(…) and later outcomes.wake().
  py::object submit_from_loop(py::dict request, const py::object& timeout, py::object outcomes, const py::object& loop) {
    const Nanoseconds limit = from_seconds(timeout);
    Entered entered = enter(request);
    py::object answer = make_awaitable(loop);
    const auto listener = std::make_shared<Listener>(std::move(request), std::move(outcomes), answer, entered.event);
    set_call(answer, *start_for(listener, std::move(entered.dict), limit, InlinePolicy::kEventLoop));
    return answer;
  }

  std::vector<std::string> close(const py::object& timeout) { return close_within(from_seconds(timeout)); }

  bool closed() const { return state_->closed(); }

  py::dict stats() const {
    py::dict all;
    const double uptime = seconds_since(state_->opened_at());
    const auto milliseconds = [](const NodeStats::Counter& nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; };
    for (const auto& [name, node] : state_->stats()) {
      const std::uint64_t running = node.running;
      const std::uint64_t ended = node.completed + node.failed + node.rejected + node.expired + node.cancelled;
      const std::uint64_t submitted = node.submitted;  // last: nothing that has ended is missing in it
      py::dict one;
      one["submitted"] = submitted;
      one["completed"] = node.completed.load();
      one["failed"] = node.failed.load();
      one["rejected"] = node.rejected.load();
      one["expired"] = node.expired.load();
      one["cancelled"] = node.cancelled.load();
      one["waiting"] = submitted > ended + running ? submitted - ended - running : 0;
      one["running"] = running;
      one["retried"] = node.retried.load();
      one["batches"] = node.batches.load();
      one["batch_items"] = node.batch_items.load();
      one["inline_batches"] = node.inline_batches.load();
      one["model_calls"] = node.model_calls.load();
      one["compute_ms"] = milliseconds(node.compute_ns);
      one["closed_full"] = node.closed_full.load();
      one["closed_target_size"] = node.closed_target_size.load();
      one["closed_timeout"] = node.closed_timeout.load();
      one["closed_queue_empty"] = node.closed_queue_empty.load();
      if (const std::uint64_t target = node.target_batch_size) {
        one["target_batch_size"] = target;
        one["batch_overhead_ms"] = milliseconds(node.batch_overhead_ns);
        one["per_item_ms"] = milliseconds(node.per_item_ns);
      }
      one["uptime_s"] = uptime;
      all[py::str(name)] = one;
    }
    for (const auto& [name, counters] : state_->counters())
      if (const auto counts = counters.all(); !counts.empty()) {
        const py::str node(name);
        if (!all.contains(node)) all[node] = py::dict();
        all[node]["counters"] = counts;
      }
    return all;
  }

 private:
  std::vector<std::string> close_within(Nanoseconds patience) {
    std::vector<std::string> abandoned;
    {
      const ReleaseGil released;
      abandoned = state_->close(patience);
    }
    if (const auto interrupted = take_stored_interrupt()) raise(with_abandoned(*interrupted, abandoned));
    return abandoned;
  }

  struct Entered {
    Dict dict;
    Ref<Event> event;  // null: somebody waits
  };

  // A snapshot; and nothing stale stays in the caller's dict.
  static Entered enter(py::dict& request) {
    Entered made;
    try {
      made.dict = snapshot(request);
    } catch (...) {
      forget_result(request);
      throw;
    }
    if (made.dict.contains(kResult)) forget_result(request);
    if (const Value* given = made.dict.find(kEvent)) made.event = claimed_event(*given);
    return made;
  }

  // The global lock is kept: whoever lets it go among many that want it waits long to have it again. The core does where it
  // waits.
  Ref<Call> start_for(const std::shared_ptr<Listener>& listener, Dict dict, Nanoseconds limit, InlinePolicy how) {
    drain_dropped();
    try {
      Ref<Call> call = post(std::move(dict), limit, listener, how);
      listener->started();
      return call;
    } catch (...) {
      const Error error = current_error();
      listener->fail_event(error);
      throw error;
    }
  }

  // What happens to a request with an event is told to the event alone: also that the pipe is closed.
  void start(Entered entered, py::dict& request, Nanoseconds limit) {
    const auto listener = std::make_shared<Listener>(request, py::object(), entered.event);
    const ReleaseGil released;
    try {
      post(std::move(entered.dict), limit, listener, InlinePolicy::kNonBlocking);
    } catch (const Interrupted&) {  // of which the event has been told already
      throw;
    } catch (...) {
      listener->fail_event(current_error());
    }
  }

  Ref<Call> post(Dict dict, Nanoseconds limit, const std::shared_ptr<Listener>& listener, InlinePolicy how) {
    std::vector<Dict> dicts;
    dicts.push_back(std::move(dict));
    return state_->start(std::move(dicts), limit, how,
                         [listener](Call& call) { listener->tell(call); });
  }

  Ref<Call> run(std::vector<Dict> dicts, Nanoseconds limit) {
    if (state_->non_blocking()) return state_->run(std::move(dicts), limit);  // microseconds; a wait lets the lock go
    const ReleaseGil released;
    return state_->run(std::move(dicts), limit);
  }

  std::shared_ptr<PipeState> state_;
};

}  // namespace

void register_pipe(py::module_& module) {
  register_awaitable(module);
  const auto make = [](const py::object& config) { return std::make_unique<PyPipe>(config_of(config)); };
  py::class_<PyPipe>(module, "Pipe", "A built pipe.")
      .def(py::init(make), py::arg("config"))
      .def("call", &PyPipe::call, py::arg("request"), py::arg("timeout") = py::none())
      .def("call_many", &PyPipe::call_many, py::arg("requests"), py::arg("timeout") = py::none())
      .def("submit", &PyPipe::submit, py::arg("request"), py::arg("timeout"), py::arg("done"))
      .def("submit_from_loop", &PyPipe::submit_from_loop, py::arg("request"), py::arg("timeout"), py::arg("outcomes"),
           py::arg("loop"))
      .def("close", &PyPipe::close, py::arg("timeout"))
      .def_property_readonly("closed", &PyPipe::closed)
      .def("stats", &PyPipe::stats);
  module.def("cancel", cancel, py::arg("call"));
  module.def("wait_inside", wait_inside, py::arg("call"));
  module.def("on_core_thread", &Worker::on_some_worker);
  module.def("wait_for_detached_inits", [](const py::object& timeout) {
    const Nanoseconds until = until_of(timeout);
    const ReleaseGil released;
    return wait_for_detached_inits(until);
  }, py::arg("timeout"));
}

}  // namespace hami::bind
