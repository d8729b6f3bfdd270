// hami.Tensor: a tensor of the core as a Python object.
#include "tensor.hpp"

#include <pybind11/stl.h>

#include "core_objects.hpp"
#include "value/error.hpp"

namespace hami::bind {
namespace {

constexpr const char* kTensorDoc = R"(An array in CPU memory, such as the `result` of a built-in or native backend.

    scores = hami.to_numpy(request["result"])      # or torch.from_dlpack(…), memoryview(…)

These conversions do not copy; each of them keeps the memory alive.)";

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kLegacy = "dltensor";

// A tensor in the layout of DLPack before 1.0, and the versioned tensor that owns its memory.
struct Legacy {
  DLManagedTensor managed{};
  DLManagedTensorVersioned* versioned = nullptr;
};

DLManagedTensor* as_legacy(DLManagedTensorVersioned* versioned) {
  auto* legacy = new Legacy;
  legacy->managed.dl_tensor = versioned->dl_tensor;
  legacy->managed.manager_ctx = legacy;
  legacy->managed.deleter = [](DLManagedTensor* self) {
    const std::unique_ptr<Legacy> owned(static_cast<Legacy*>(self->manager_ctx));
    owned->versioned->deleter(owned->versioned);
  };
  legacy->versioned = versioned;
  return &legacy->managed;
}

// A consumer that takes the tensor renames the capsule. Otherwise the capsule still owns the tensor.
template <class Managed>
void delete_unconsumed(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

py::object capsule_around(DLManagedTensorVersioned* managed) {
  const auto destroy = [](PyObject* capsule) { delete_unconsumed<DLManagedTensorVersioned>(capsule, kVersioned); };
  if (PyObject* made = PyCapsule_New(managed, kVersioned, destroy)) return py::reinterpret_steal<py::object>(made);
  managed->deleter(managed);
  throw py::error_already_set();
}

py::object capsule_around(DLManagedTensor* managed) {
  const auto destroy = [](PyObject* capsule) { delete_unconsumed<DLManagedTensor>(capsule, kLegacy); };
  if (PyObject* made = PyCapsule_New(managed, kLegacy, destroy)) return py::reinterpret_steal<py::object>(made);
  managed->deleter(managed);
  throw py::error_already_set();
}

using Pair = std::optional<std::pair<int, int>>;

py::object dlpack(const Tensor& self, const py::object& stream, Pair max_version, Pair device,
                  std::optional<bool> copy_requested) {
  if (!stream.is_none()) throw py::buffer_error("a tensor in CPU memory has no stream: stream must be None");
  const DLDevice here = self->device();
  if (device && *device != std::pair<int, int>(kDLCPU, 0) &&
      *device != std::pair<int, int>(here.device_type, here.device_id))
    throw py::buffer_error("the tensor is in CPU memory and cannot be exported to another device");
  const bool copies = copy_requested.value_or(false);
  const Tensor tensor = copies ? copy(self) : self;
  const bool versioned = max_version && max_version->first >= DLPACK_MAJOR_VERSION;
  if (!versioned && tensor->is_read_only())
    throw py::buffer_error("the tensor is read-only, which DLPack before 1.0 cannot express: pass max_version=(1, 0)");
  DLManagedTensorVersioned* managed = export_tensor(tensor, copies ? DLPACK_FLAG_BITMASK_IS_COPIED : 0);
  return versioned ? capsule_around(managed) : capsule_around(as_legacy(managed));
}

// The buffer format, in the codes of the module `struct` and, for complex numbers, of NumPy; null if there is no code.
const char* buffer_format(DLDataType type) {
  struct Format {
    DLDataType type;
    const char* text;
  };
  constexpr Format kFormats[] = {{kBool8, "?"},
                                 {kInt8, "b"},
                                 {kInt16, "h"},
                                 {kInt32, "i"},
                                 {kInt64, "l"},
                                 {kUInt8, "B"},
                                 {kUInt16, "H"},
                                 {kUInt32, "I"},
                                 {kUInt64, "L"},
                                 {kFloat16, "e"},
                                 {kFloat32, "f"},
                                 {kFloat64, "d"},
                                 {dtype(kDLComplex, 64), "Zf"},
                                 {dtype(kDLComplex, 128), "Zd"}};
  static_assert(sizeof(long) == 8);
  for (const Format& format : kFormats)
    if (same_dtype(format.type, type)) return format.text;
  return nullptr;
}

py::buffer_info buffer(const TensorObject& self) {
  const char* format = buffer_format(self.dtype());
  if (!format) throw py::buffer_error("the buffer protocol has no format for " + dtype_name(self.dtype()));
  static char empty;  // an empty tensor may have no memory, but a buffer needs an address
  const auto item = static_cast<py::ssize_t>(item_size(self.dtype()));
  std::vector<py::ssize_t> strides(self.strides().begin(), self.strides().end());
  for (py::ssize_t& stride : strides) stride *= item;
  return py::buffer_info(self.data() ? self.data() : &empty, item, format, static_cast<py::ssize_t>(self.rank()),
                         std::vector<py::ssize_t>(self.shape().begin(), self.shape().end()), std::move(strides),
                         self.is_read_only());
}

std::int64_t length(const TensorObject& self) {
  if (self.rank() == 0) throw py::type_error("len() of a tensor without axes");
  return self.shape()[0];
}

}  // namespace

void register_tensor(py::module_& module) {
  module.def(
      "check_dlpack", check_capsule, py::arg("object"), py::arg("capsule"),
      "Raise DataTypeError if the DLPack capsule of an object is damaged, so that reading it could end the process.");
  py::class_<TensorObject, Tensor> tensor(module, "Tensor", kTensorDoc, py::is_final(), py::buffer_protocol());
  tensor.attr("__module__") = "hami";
  tensor.def_buffer(buffer)
      .def_property_readonly("shape", [](const TensorObject& self) { return py::tuple(py::cast(self.shape())); },
                             "The length of each axis, as a tuple.")
      .def_property_readonly("dtype", [](const TensorObject& self) { return dtype_name(self.dtype()); },
                             "The element type: \"float32\", \"int64\", \"bfloat16\", …")
      .def_property_readonly("nbytes", &TensorObject::bytes, "The size of the elements in bytes.")
      .def("__dlpack__", dlpack, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
           "Export the memory as a DLPack capsule, without a copy unless `copy` is true.")
      .def("__dlpack_device__",
           [](const TensorObject& self) {
    return py::make_tuple(static_cast<int>(self.device().device_type), self.device().device_id);
  }, "Return the DLPack device type and device id.")
      .def("__len__", length)
      .def("__repr__", [](const TensorObject& self) { return "<hami.Tensor " + show_tensor(self) + ">"; });
}

}  // namespace hami::bind
