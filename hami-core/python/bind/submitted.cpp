// The handle of a submitted request: a capsule, because that is cheaper to create than an object of a class.
#include "submitted.hpp"

#include <utility>

#include "greenlets.hpp"

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
}

}  // namespace hami::bind
