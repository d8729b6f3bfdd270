// Imports NumPy's arrays, and other objects with __dlpack__, as tensors of the core.

#include <cstring>
#include <vector>

#include "errors.hpp"
#include "tensor.hpp"
#include "value/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// Keeps the producer's capsule unconsumed. PyRef destroys the capsule with the GIL held, and the capsule's own
// destructor frees the memory, so the producer's code never runs without the GIL.
struct ImportedCapsule {
  DLManagedTensorVersioned managed{};
  PyRef capsule;
};

// Keeps the array and not its buffer, whose release needs the GIL. As with DLPack, the reference keeps the memory.
struct ImportedArray {
  DLManagedTensorVersioned managed{};
  std::vector<std::int64_t> shape_and_strides;
  PyRef array;
};

// The dtype of a format of the buffer protocol; nothing for a format that is not one native number.
std::optional<DLDataType> dtype_of(const char* format, Py_ssize_t item_size) noexcept {
  if (!format || !format[0]) return std::nullopt;
  const bool is_complex = format[0] == 'Z';
  if (format[is_complex ? 2 : 1] != 0) return std::nullopt;
  const auto of_kind = [&](DLDataTypeCode code) {
    return DLDataType{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * item_size), 1};
  };
  switch (format[is_complex ? 1 : 0]) {
    case 'f':
    case 'd': return of_kind(is_complex ? kDLComplex : kDLFloat);
    case 'e': return is_complex ? std::nullopt : std::optional(of_kind(kDLFloat));
    case '?': return of_kind(kDLBool);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q': return of_kind(kDLInt);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q': return of_kind(kDLUInt);
    default: return std::nullopt;
  }
}

constexpr const char* kExchangeApi = "dlpack_exchange_api";  // the name of its capsule
py::handle exchange_api_name, requires_grad_name, is_conj_name, is_neg_name;

[[noreturn]] void throw_import_error(py::handle object, const std::string& reason) {
  throw Error(ErrorCode::kDataType, "the " + python_type_name(object) + " " + reason);
}

DLDevice device_of(py::handle object) {
  if (!py::hasattr(object, "__dlpack_device__")) return {kDLCPU, 0};
  const py::tuple device = object.attr("__dlpack_device__")();
  return {static_cast<DLDeviceType>(py::int_(device[0]).cast<std::int32_t>()),
          py::int_(device[1]).cast<std::int32_t>()};
}

// Producers before DLPack 1.0 know only `stream`, and cannot mark memory as read-only. For CPU memory there is no stream.
py::object capsule_of(py::handle object, std::optional<std::int64_t> stream) {
  const py::object method = object.attr("__dlpack__");
  py::dict options;
  if (stream) options["stream"] = *stream;
  try {
    return method(**options, py::arg("max_version") = py::make_tuple(DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION),
                  py::arg("copy") = false);
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_TypeError)) throw;
  }
  return method(**options);
}

void read_capsule(py::handle object, const py::object& capsule, DLManagedTensorVersioned& into) {
  into.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    into.version = managed->version;
    if (managed->version.major != DLPACK_MAJOR_VERSION) return;  // unknown layout, which adopt() rejects
    into.flags = managed->flags;
    into.dl_tensor = managed->dl_tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    into.dl_tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->dl_tensor;
  } else {
    throw_import_error(object, "did not return a DLPack capsule from __dlpack__: " + std::string(py::repr(capsule)));
  }
}

// The C functions by which the objects of a type export their tensors, as DLPack 1.3 lays them out.
struct ExchangeApi {
  DLPackVersion version;
  const ExchangeApi* previous;
  void (*allocate)();
  int (*export_tensor)(void* object, DLManagedTensorVersioned** out);
  void (*import_tensor)();
  void (*view_tensor)();
  int (*current_stream)(DLDeviceType type, std::int32_t device, void** out);
};

// Those of the type itself: a subclass may export something else.
const ExchangeApi* exchange_api_of(py::handle object) noexcept {
  PyObject* const own = Py_TYPE(object.ptr())->tp_dict;
  PyObject* const capsule = own ? PyDict_GetItem(own, exchange_api_name.ptr()) : nullptr;
  if (!capsule || !PyCapsule_IsValid(capsule, kExchangeApi)) return nullptr;
  const auto* const api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule, kExchangeApi));
  return api->version.major == DLPACK_MAJOR_VERSION ? api : nullptr;
}

// Whether an object says True of itself, by an attribute or by a method without arguments.
bool is_true(py::handle object, py::handle name) {
  const py::object found = py::getattr(object, name, py::object());
  if (!found) return false;
  const py::object value = PyCallable_Check(found.ptr()) ? found() : found;
  return value.ptr() == Py_True;  // a type may give the name another meaning, such as one answer for each element
}

// A view of torch whose elements are the negated ones in memory. Its __dlpack__ exports the memory in silence.
void require_not_negated(py::handle object) {
  if (is_true(object, is_neg_name))
    throw_import_error(object, "is a negated view, which DLPack does not describe; call resolve_neg() on it");
}

Value exported_at_once(py::handle object, const ExchangeApi& api, std::int64_t stream) {
  for (const py::handle state : {requires_grad_name, is_conj_name, is_neg_name})  // which `api` does not look at
    if (is_true(object, state)) return {};
  DLManagedTensorVersioned* managed = nullptr;
  if (api.export_tensor(object.ptr(), &managed) != 0) {
    PyErr_Clear();  // __dlpack__ says what is wrong
    return {};
  }
  if (!managed) return {};
  const auto let_go = [](DLManagedTensorVersioned* tensor) {
    if (tensor->deleter) tensor->deleter(tensor);
  };
  std::unique_ptr<DLManagedTensorVersioned, decltype(let_go)> held(managed, let_go);
  const DLDevice device = managed->dl_tensor.device;
  void* current = nullptr;
  if (is_cpu_memory(device)) return {};
  if (api.current_stream(device.device_type, device.device_id, &current) != 0) {
    PyErr_Clear();
    return {};
  }
  const auto producers = reinterpret_cast<std::int64_t>(current);
  if ((producers ? producers : kDefaultStream) != stream) return {};  // __dlpack__ orders the streams
  return to_value(TensorObject::adopt_on_device(held.release(), nullptr));
}

// Returns an object with the values of a numpy scalar, or of a numpy array that DLPack cannot describe; None for any other object.
py::object exportable(py::handle object) {
  return py::module_::import("hami._runtime.tensors").attr("exportable")(object);
}

}  // namespace

void make_import_names() {
  exchange_api_name = interned("__dlpack_c_exchange_api__");
  requires_grad_name = interned("requires_grad");
  is_conj_name = interned("is_conj");
  is_neg_name = interned("is_neg");
}

bool is_array(py::handle object) noexcept { return std::strcmp(Py_TYPE(object.ptr())->tp_name, "numpy.ndarray") == 0; }

Value array_as_tensor(py::handle array) {
  HAMI_ASSERT(has_gil());
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    PyErr_Clear();
    return {};
  }
  struct Release {
    ~Release() { PyBuffer_Release(&view); }
    Py_buffer& view;
  } const release{view};
  const std::optional<DLDataType> dtype = dtype_of(view.format, view.itemsize);
  if (!dtype) return {};
  auto imported = std::make_unique<ImportedArray>();
  std::vector<std::int64_t>& sizes = imported->shape_and_strides;
  sizes.assign(view.shape, view.shape + view.ndim);
  for (int axis = 0; axis < view.ndim; ++axis) {
    if (view.strides[axis] % view.itemsize != 0) return {};
    sizes.push_back(view.strides[axis] / view.itemsize);
  }
  DLManagedTensorVersioned& managed = imported->managed;
  managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed.flags = view.readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  std::int64_t* const shape = sizes.data();
  managed.dl_tensor = {view.buf, {kDLCPU, 0}, view.ndim, *dtype, shape, shape + view.ndim, 0};
  managed.manager_ctx = imported.get();
  managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<ImportedArray*>(self->manager_ctx); };
  imported->array = PyRef(py::reinterpret_borrow<py::object>(array));
  return to_value(TensorObject::adopt(&imported.release()->managed));
}

bool has_exchange_api(py::handle object) noexcept { return exchange_api_of(object) != nullptr; }

Value device_tensor_at_once(py::handle object, std::int64_t stream) {
  HAMI_ASSERT(has_gil());
  const ExchangeApi* const api = exchange_api_of(object);
  if (!api) return {};
  try {
    return exported_at_once(object, *api, stream);
  } catch (const Error&) {  // of a tensor that the core cannot hold
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_Exception) || raised.matches(PyExc_MemoryError)) throw from_python(raised);
  }
  return {};  // tensor_from says what is wrong, to a backend that reads the object
}

Value tensor_from(py::handle object, std::optional<std::int64_t> stream) {
  HAMI_ASSERT(has_gil());
  if (stream)
    if (Value tensor = device_tensor_at_once(object, *stream); tensor.kind() != Kind::kNone) return tensor;
  if (!stream && is_array(object))
    if (Value tensor = array_as_tensor(object); tensor.kind() != Kind::kNone) return tensor;
  if (!py::hasattr(object, "__dlpack__")) {
    const py::object same = exportable(object);
    return same.is_none() ? Value() : tensor_from(same, stream);
  }
  try {
    require_not_negated(object);
    const DLDevice device = device_of(object);
    if (is_cpu_memory(device)) stream.reset();
    if (!stream) require_cpu_memory(device, "the " + python_type_name(object));
    const py::object capsule = capsule_of(object, stream);
    auto imported = std::make_unique<ImportedCapsule>();
    read_capsule(object, capsule, imported->managed);
    imported->capsule = PyRef(capsule);
    imported->managed.manager_ctx = imported.get();
    imported->managed.deleter = [](DLManagedTensorVersioned* self) {
      delete static_cast<ImportedCapsule*>(self->manager_ctx);
    };
    DLManagedTensorVersioned* const managed = &imported.release()->managed;
    return to_value(stream ? TensorObject::adopt_on_device(managed, nullptr) : TensorObject::adopt(managed));
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_Exception) || raised.matches(PyExc_MemoryError)) throw from_python(raised);
    if (const py::object same = exportable(object); !same.is_none()) return tensor_from(same, stream);
    throw_import_error(object, "cannot be imported as a tensor: " + std::string(py::str(raised.value())));
  } catch (py::builtin_exception& error) {  // from a cast in device_of
    throw_import_error(object, std::string("cannot be imported as a tensor: ") + error.what());
  }
}

DLDevice device_of_tensor(py::handle object) {
  if (is_array(object)) return {kDLCPU, 0};  // the most frequent, without the GIL
  const HoldGil gil;
  try {
    return device_of(object);
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_Exception)) throw from_python(raised);
  } catch (py::builtin_exception&) {
  }
  return {kDLCPU, 0};  // the reader of the tensor reports what is wrong
}

void check_capsule(py::handle object, const py::object& capsule) {
  require_not_negated(object);
  DLManagedTensorVersioned managed{};
  read_capsule(object, capsule, managed);
  check_dlpack(managed.dl_tensor);
}

std::string python_type_name(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  try {
    const std::string name = py::str(type.attr("__qualname__"));
    const std::string module = py::str(type.attr("__module__"));
    return module == "builtins" ? name : module + "." + name;
  } catch (const py::error_already_set&) {  // of its metaclass
    return class_name(object);
  }
}

}  // namespace hami::bind
