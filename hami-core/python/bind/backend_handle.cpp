// Loan: waits for the users of a lent backend. BackendHandle: its methods in Python.
#include "backend_handle.hpp"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "errors.hpp"
#include "greenlets.hpp"
#include "listener.hpp"
#include "pipe/api.hpp"
#include "request/api.hpp"
#include "request_view.hpp"
#include "time.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kHandleDoc =
    R"(A backend as a value: one in the brackets of a Python backend, its dependency, or an instance of the pipe.

    detect = self.find("node.detect")        # in `init` or later
    detect.forward(batch)                    # runs requests of the current batch
    detect({"data": crop})["result"]         # runs a request of its own

It may be a value of a request, and any thread may use it. Use after the backend has ended raises PipeClosed.)";

// The keys of a request of the caller. A request of a backend cannot be asynchronous.
Dict to_dict(py::dict& request) {
  remove_result(request);
  Dict keys = snapshot(request);
  if (keys.contains(kEvent))
    throw Error(ErrorCode::kRequest, "a call of a backend is not asynchronous; remove \"event\", or call the pipe");
  return keys;
}

// Runs requests that the caller made in a lent backend. Fails the requests; throws nothing.
void run_lent(Backend& backend, const std::vector<Ref<Request>>& requests, Nanoseconds limit) {
  const Nanoseconds moment = now();
  std::vector<Request*> open;
  for (const Ref<Request>& request : requests) {
    // This thread may wait for the request, and lends it to the backend until it completes.
    request->wait_token = Ref<Counted>(make_counted<WaitToken>(WaitToken::Release::kCompleted).get());
    try {
      request->items = declared_items(request->dict);
      if (read_urgency(*request, limit, moment)) open.push_back(request.get());
    } catch (const Error& error) {
      request->fail(error);
    }
  }
  if (open.empty()) return;
  forward_with_retry(Batch(open), backend.traits().idempotent, [&](Batch part) { backend.forward(part); });
  for (Request* request : open) {
    request->fail_if_cancelled();
    if (request->alive() && !request->dict.contains(kResult))
      request->fail(Error(ErrorCode::kNoResult, backend.label() + " left no `result`"));
  }
}

// Runs requests that the caller made. Returns None or an exception for each.
py::list run(const BackendHandle& self, const std::vector<py::dict>& requests, const py::object& timeout) {
  check_greenlet();
  run_pending_decrefs();
  const BackendPtr backend = self.use();
  const Nanoseconds limit = from_seconds(timeout);
  std::vector<Dict> keys;
  for (py::dict request : requests) keys.push_back(to_dict(request));
  py::list errors;
  const auto deliver_to = [&](py::dict request, const Error* failed, const Dict& dict) {
    const std::optional<Error> error = deliver(failed, dict, request);
    errors.append(error ? to_exception(*error) : py::none());
  };
  if (self.is_instance()) {
    const std::shared_ptr<PipeState> pipe = self.pipe();
    const Ref<Call> call = [&] {
      const ReleaseGil released;
      return pipe->run(std::move(keys), limit, backend);
    }();
    for (std::size_t i = 0; i < requests.size(); ++i) deliver_to(requests[i], call->error(i), call->dict(i));
    return errors;
  }
  std::vector<Ref<Request>> own;
  for (Dict& dict : keys) {
    own.push_back(make_counted<Request>());
    own.back()->dict = std::move(dict);
  }
  {
    const ReleaseGil released;
    run_lent(*backend, own, limit);
  }
  for (std::size_t i = 0; i < requests.size(); ++i)
    deliver_to(requests[i], own[i]->error ? &*own[i]->error : nullptr, own[i]->dict);
  return errors;
}

void forward(const BackendHandle& self, const py::list& batch) {
  check_greenlet();
  const BackendPtr backend = self.use();
  const Borrowed borrowed(batch);
  const ReleaseGil released;
  backend->forward(Batch(borrowed.requests()));
}

void forward_with_dep(const BackendHandle& self, const py::list& batch, const BackendHandle& dependency) {
  check_greenlet();
  const BackendPtr backend = self.use();
  const BackendPtr used = dependency.use();
  const Borrowed borrowed(batch);
  const ReleaseGil released;
  backend->forward_with_dep(Batch(borrowed.requests()), *used);
}

py::object call(const py::object& self, const py::object& requests, const py::object& timeout) {
  return py::module_::import("hami._runtime.calls").attr("call")(self.attr("_run"), requests, timeout);
}

// One call at a time, if the core may make only one at a time.
BackendPtr for_any_thread(BackendPtr backend) {
  if (backend->traits().thread == ThreadMode::kConcurrent) return backend;
  return std::make_shared<SerializedBackend>(std::move(backend));
}

}  // namespace

BackendHandle::BackendHandle(const std::shared_ptr<PipeContext>& context, const std::string& name)
    : Object(Kind::kBackend),
      proxy_(make_instance_proxy(context, name)),
      context_(context),
      label_(name),
      ended_(ErrorCode::kPipeClosed, "the pipe is closed") {
  proxy_->describe(name, proxy_->traits());
}

std::shared_ptr<PipeState> BackendHandle::pipe() const {
  const std::shared_ptr<PipeContext> context = context_.lock();
  if (std::shared_ptr<void> pipe = context ? context->shutdown.pipe() : nullptr)
    return std::static_pointer_cast<PipeState>(std::move(pipe));
  throw Error(ended_);
}

struct Loan::Users {
  Mutex mutex;
  CondVar changed;
  bool gone HAMI_GUARDED_BY(mutex) = false;
};

// The deleter of `lent_` runs when the loan has ended and the last thread that uses the backend is done.
Loan::Loan(BackendPtr backend, Error ended)
    : users_(std::make_shared<Users>()), backend_(for_any_thread(std::move(backend))), ended_(std::move(ended)) {
  lent_ = BackendPtr(backend_.get(), [users = users_](Backend*) {
    const MutexLock lock(users->mutex);
    users->gone = true;
    users->changed.notify_all();
  });
}

Ref<BackendHandle> Loan::handle() const { return make_object<BackendHandle>(lent_, backend_->label(), ended_); }

bool Loan::end(Nanoseconds until) noexcept {
  if (!users_) return true;  // moved away
  lent_.reset();
  const auto gone = [&] {
    users_->mutex.assert_held();
    return users_->gone;
  };
  {
    const MutexLock lock(users_->mutex);
    if (gone()) return true;
  }
  const BlockingScope blocking;
  MutexLock lock(users_->mutex);
  if (until != kNever) return users_->changed.wait_until(lock, until, gone);
  users_->changed.wait(lock, gone);
  return true;
}

void register_backend_handle(py::module_& module) {
  py::class_<BackendHandle, Ref<BackendHandle>> handle(module, "BackendHandle", kHandleDoc, py::is_final());
  handle.attr("__module__") = "hami";
  handle
      .def("forward", forward, py::arg("batch"),
           "Run a batch of requests and set their `result`. Raises the error of the batch.")
      .def("forward_with_dep", forward_with_dep, py::arg("batch"), py::arg("dependency"),
           "Run a batch of requests with a dependency, as `With[…]` does. Raises the error of the batch.")
      .def("__call__", call, py::arg("requests"), py::arg("timeout") = py::none(),
           "Run a request, or a list of requests, that do not belong to a batch, and wait for the results.")
      .def("_run", run, py::arg("requests"), py::arg("timeout"),
           "Run requests that do not belong to a batch. Return None or an exception for each.")
      .def_property_readonly("min", [](const BackendHandle& self) { return self.use()->min(); },
                             "The minimum batch size.")
      .def_property_readonly("max",
                             [](const BackendHandle& self) -> std::variant<std::monostate, std::size_t, std::string> {
    const Range range = self.use()->range();
    if (range.is_auto()) return show_max(range.max);
    if (range.declared()) return range.max;
    return {};
  }, "The maximum batch size; \"auto\" if the backend takes any number; None if it declares none.")
      .def_property_readonly("label", &BackendHandle::label,
                             "The name as written in the expression, or that of the instance.")
      .def("__repr__", [](const BackendHandle& self) { return "<hami.types.BackendHandle " + self.label() + ">"; });
}

}  // namespace hami::bind
