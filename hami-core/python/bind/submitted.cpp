// The handle of a submitted request: a capsule, because that is cheaper to create than an object of a class. The locks of
// its future.
#include "submitted.hpp"

#include <utility>

#include "greenlets.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kCallCapsule = "hami.call";
char no_call;  // in a capsule whose request has not started

Ref<Call> call_in(const py::object& handle) {
  void* const call = PyCapsule_GetPointer(handle.ptr(), kCallCapsule);
  if (!call) throw py::error_already_set();
  return Ref<Call>(static_cast<Call*>(call));
}

bool cancel(const py::object& handle) {
  const Ref<Call> call = call_in(handle);
  const ReleaseGil released;
  return call->give_up(Error::cancelled());
}

void wait_if_nested(const py::object& handle) {
  check_may_block();
  const Ref<Call> call = call_in(handle);
  const ReleaseGil released;
  call->wait_inside();
}

py::handle release_name;

// condition.__exit__(type, error, traceback). It needs no memory, unlike that of threading.Condition.
PyObject* release_condition(PyObject*, PyObject* const* given, Py_ssize_t count) noexcept {
  if (count == 4) return PyObject_CallMethodNoArgs(given[0], release_name.ptr());
  PyErr_SetString(PyExc_TypeError, "release_condition() is an __exit__");
  return nullptr;
}

PyMethodDef release_condition_definition = {
    "release_condition", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(release_condition)), METH_FASTCALL,
    "Release the lock of a condition, as its __exit__, without memory."};

}  // namespace

py::object make_handle() {
  const auto release = [](PyObject* capsule) {
    void* const call = PyCapsule_GetPointer(capsule, kCallCapsule);
    if (call != &no_call) static_cast<Call*>(call)->release();
  };
  PyObject* const capsule = PyCapsule_New(&no_call, kCallCapsule, release);
  if (!capsule) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(capsule);
}

void put_in(const py::object& handle, Ref<Call> call) noexcept { PyCapsule_SetPointer(handle.ptr(), call.detach()); }

void register_submitted(py::module_& module) {
  module.def("cancel", cancel, py::arg("call"), "Cancel a submitted request. Returns False if it has completed.");
  module.def("wait_if_nested", wait_if_nested, py::arg("call"),
             "Wait for a submitted request if this thread runs a backend or a pipe; otherwise return at once.");
  release_name = interned("release");
  const auto function = py::reinterpret_steal<py::object>(PyCFunction_New(&release_condition_definition, nullptr));
  if (!function) throw py::error_already_set();
  PyObject* const method = PyInstanceMethod_New(function.ptr());  // a function in C becomes no method by itself
  if (!method) throw py::error_already_set();
  module.attr("release_condition") = py::reinterpret_steal<py::object>(method);
}

}  // namespace hami::bind
