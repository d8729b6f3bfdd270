// hami._core.Pipe: the call from Python, and everything around it.
#include "pipe.hpp"

#include <pybind11/stl.h>

#include "base/worker.hpp"
#include "config.hpp"
#include "errors.hpp"
#include "pipe/pipe_state.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

Nanoseconds from_seconds(std::optional<double> seconds) {
  return seconds ? from_milliseconds(std::max(0.0, *seconds) * 1e3) : kNever;
}

// Runs when the last outcome of a submitted call is there: tells Python, on whatever thread this is.
void tell(Call& call, const PyRef& request, const PyRef& done) noexcept {
  const HoldGil gil;
  try {
    py::object outcome = py::none();
    py::dict dict = py::reinterpret_borrow<py::dict>(request.get());
    PyDict_DelItemString(dict.ptr(), "result");
    PyErr_Clear();
    if (const Error* error = call.error(0))
      outcome = to_exception(*error);
    else
      write_back(call.dict(0), dict);
    py::reinterpret_borrow<py::object>(done.get())(outcome);
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: the completion of a submitted request");
  }
  drain_dropped();
}

struct CallHandle {
  Ref<Call> call;
};

class PyPipe {
 public:
  static constexpr Nanoseconds kPatience = 10'000'000'000;

  explicit PyPipe(const PipeConfig& config) {
    py::gil_scoped_release release;
    state_ = PipeState::build(config);
  }
  // A pipe that nobody closed ends like one that was: what was submitted is finished.
  ~PyPipe() {
    if (!state_ || state_->closed()) return;
    py::gil_scoped_release release;
    if (!Worker::on_some_worker()) {
      state_->close(kPatience);
      return;
    }
    static Worker& closer = *new Worker("hami-closer");  // the last reference went on a thread that cannot join itself
    closer.post([state = state_] { state->close(kPatience); });
  }

  // One request. Raises its error, after which it has no `result`.
  py::dict call(py::dict request, std::optional<double> timeout) {
    drain_dropped();
    std::vector<Dict> dicts;
    dicts.push_back(enter(request));
    const Ref<Call> call = run(std::move(dicts), timeout);
    if (const Error* error = call->error(0)) raise(*error);
    write_back(call->dict(0), request);
    return request;
  }

  // Several requests: None or the exception for each.
  py::list call_many(const std::vector<py::dict>& requests, std::optional<double> timeout) {
    drain_dropped();
    std::vector<Dict> dicts;
    for (py::dict request : requests) dicts.push_back(enter(request));
    const Ref<Call> call = run(std::move(dicts), timeout);
    py::list outcomes;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      py::dict request = requests[i];
      const Error* error = call->error(i);
      if (!error) write_back(call->dict(i), request);
      outcomes.append(error ? to_exception(*error) : py::none());
    }
    return outcomes;
  }

  // Starts one request; `done(exception or None)` is called once, on any thread.
  CallHandle submit(py::dict request, std::optional<double> timeout, py::object done) {
    drain_dropped();
    std::vector<Dict> dicts;
    dicts.push_back(enter(request));
    auto held_request = std::make_shared<PyRef>(std::move(request));
    auto held_done = std::make_shared<PyRef>(std::move(done));
    py::gil_scoped_release release;
    return {state_->start(std::move(dicts), from_seconds(timeout), Inline::kQuick,
                          [held_request, held_done](Call& call) { tell(call, *held_request, *held_done); })};
  }

  std::vector<std::string> close(std::optional<double> timeout) {
    py::gil_scoped_release release;
    return state_->close(from_seconds(timeout));
  }

  bool closed() const { return state_->closed(); }

  py::dict stats() const {
    py::dict all;
    for (const auto& [name, node] : state_->stats()) {
      py::dict one;
      one["requests"] = node.requests.load();
      one["failed"] = node.failed.load();
      one["batches"] = node.batches.load();
      one["items"] = node.items.load();
      one["retried"] = node.retried.load();
      one["inline"] = node.inline_runs.load();
      one["busy_ms"] = static_cast<double>(node.busy_ns.load()) / 1e6;
      all[py::str(name)] = one;
    }
    return all;
  }

 private:
  // A snapshot; and nothing stale stays in the caller's dict.
  static Dict enter(py::dict& request) {
    Dict made = snapshot(request);
    if (made.contains(kResult)) PyDict_DelItemString(request.ptr(), "result");
    if (made.contains("event"))
      throw Error(ErrorCode::kDataType, "the key \"event\" is reserved for a hami.Event; use pipe.submit for an answer later");
    return made;
  }

  Ref<Call> run(std::vector<Dict> dicts, std::optional<double> timeout) {
    const Nanoseconds limit = from_seconds(timeout);
    if (state_->quick()) {  // microseconds; should it wait after all, the core lets the lock go
      Ref<Call> call = state_->start(std::move(dicts), limit, Inline::kAny);
      call->wait();
      return call;
    }
    py::gil_scoped_release release;
    Ref<Call> call = state_->start(std::move(dicts), limit, Inline::kAny);
    call->wait();
    return call;
  }

  std::shared_ptr<PipeState> state_;
};

}  // namespace

void register_pipe(py::module_& module) {
  py::class_<CallHandle>(module, "Call", "A submitted request on its way.")
      .def("cancel", [](const CallHandle& self) {
        py::gil_scoped_release release;
        self.call->give_up(Error(ErrorCode::kCancelled, "cancelled by its caller"));
      });

  const auto make = [](const py::object& config) { return std::make_unique<PyPipe>(config_of(config)); };
  py::class_<PyPipe>(module, "Pipe", "A built pipe.")
      .def(py::init(make), py::arg("config"))
      .def("call", &PyPipe::call, py::arg("request"), py::arg("timeout") = py::none())
      .def("call_many", &PyPipe::call_many, py::arg("requests"), py::arg("timeout") = py::none())
      .def("submit", &PyPipe::submit, py::arg("request"), py::arg("timeout"), py::arg("done"))
      .def("close", &PyPipe::close, py::arg("timeout"))
      .def_property_readonly("closed", &PyPipe::closed)
      .def("stats", &PyPipe::stats);
}

}  // namespace hami::bind
