// Objects with __dlpack__ as tensors of the core.
#include "value/error.hpp"
#include "errors.hpp"
#include "tensor.hpp"

namespace hami::bind {
namespace {

// The capsule stays as it came, and is ours alone: when it goes, with the lock held, its own destructor lets the memory
// go. So nothing of the producer ever runs on a thread of the core.
struct Borrowed {
  DLManagedTensorVersioned managed{};
  PyRef capsule;
};

[[noreturn]] void refuse(py::handle object, const std::string& why) {
  throw Error(ErrorCode::kDataType, "the " + python_type_name(object) + " " + why);
}

void check_device(py::handle object) {
  if (!py::hasattr(object, "__dlpack_device__")) return;
  const py::tuple device = object.attr("__dlpack_device__")();
  const DLDevice place{static_cast<DLDeviceType>(py::int_(device[0]).cast<std::int32_t>()),
                       py::int_(device[1]).cast<std::int32_t>()};
  if (!is_cpu_memory(place)) refuse(object, "is on " + show_device(place) + "; CPU memory is taken here");
}

// Those from before DLPack 1.0 take no arguments, and cannot say that they are read-only.
py::object capsule_of(py::handle object) {
  const py::object method = object.attr("__dlpack__");
  try {
    return method(py::arg("max_version") = py::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION),
                  py::arg("copy") = false);
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_TypeError)) throw;
  }
  return method();
}

void read_capsule(py::handle object, const py::object& capsule, DLManagedTensorVersioned& into) {
  into.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* given =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    into.version = given->version;
    if (given->version.major != DLPACK_MAJOR_VERSION) return;  // what follows has another layout; adopt() refuses it
    into.flags = given->flags;
    into.dl_tensor = given->dl_tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    into.dl_tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->dl_tensor;
  } else {
    refuse(object, "gave no DLPack capsule: " + std::string(py::repr(capsule)));
  }
}

}  // namespace

Value tensor_from(py::handle object) {
  if (!py::hasattr(object, "__dlpack__")) return {};
  try {
    check_device(object);
    const py::object capsule = capsule_of(object);
    auto borrowed = std::make_unique<Borrowed>();
    read_capsule(object, capsule, borrowed->managed);
    borrowed->capsule = PyRef(capsule);
    borrowed->managed.manager_ctx = borrowed.get();
    borrowed->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Borrowed*>(self->manager_ctx); };
    return to_value(TensorObject::adopt(&borrowed.release()->managed));
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_Exception)) throw from_python(raised);
    refuse(object, "cannot be seen as a tensor: " + std::string(py::str(raised.value())));
  } catch (py::builtin_exception& error) {  // a cast of what it gave
    refuse(object, std::string("cannot be seen as a tensor: ") + error.what());
  }
}

std::string python_type_name(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  const std::string name = py::str(type.attr("__qualname__"));
  const std::string module = py::str(type.attr("__module__"));
  return module == "builtins" ? name : module + "." + name;
}

}  // namespace hami::bind
