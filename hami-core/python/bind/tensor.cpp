// hami.Tensor: a tensor of the core as a Python object.
#include "tensor.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "core_objects.hpp"
#include "hami/elements.hpp"
#include "plugin/api.hpp"

namespace hami::bind {
namespace {

constexpr const char* kTensorDoc = R"(An array, such as the `result` of a built-in or native backend.

    best = request["result"][0, 1]                 # a number; request["result"][0] is a tensor over the same memory
    rows = request["result"].tolist()
    scores = hami.to_numpy(request["result"])      # or torch.from_dlpack(…), memoryview(…)

The conversions to other packages do not copy; each of them keeps the memory alive. A tensor in device memory has a
shape and a dtype, and supports indexing and torch.from_dlpack(…); its elements can be read after CpuTensor.)";

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

constexpr std::int64_t kLegacyDefaultStream = 1;
constexpr std::int64_t kNoOrder = -1;

// As DLPack says: None is the legacy default stream, and -1 asks for no order.
void order(const TensorObject& tensor, const py::object& stream) {
  const auto number = stream.is_none() ? kLegacyDefaultStream : stream.cast<std::int64_t>();
  if (tensor.order() && number != kNoOrder) tensor.order()(number);
}

py::object dlpack(const Tensor& self, const py::object& stream, Pair max_version, Pair device,
                  std::optional<bool> copy_requested) {
  const DLDevice here = self->device();
  const bool on_cpu = is_cpu_memory(here);
  const bool copies = copy_requested.value_or(false);
  if (on_cpu && !stream.is_none()) throw py::buffer_error("a tensor in CPU memory has no stream: stream must be None");
  const std::pair<int, int> place(here.device_type, here.device_id);
  if (device && *device != place && !(on_cpu && *device == std::pair<int, int>(kDLCPU, 0)))
    throw py::buffer_error("the tensor is " + (on_cpu ? std::string("in CPU memory") : "on " + show_device(here)) +
                           " and cannot be exported to another device");
  if (!on_cpu && copies) throw py::buffer_error("the tensor is on " + show_device(here) + ": copy it after the export");
  if (!on_cpu) order(*self, stream);
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
  if (!is_cpu_memory(self.device()))
    throw py::buffer_error("the tensor is on " + show_device(self.device()) + "; put CpuTensor before its reader");
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

template <class Element>
py::object number_at(const char* at) {
  const auto number = Element::load(at);
  if constexpr (Element::kType.code == kDLBool) return py::bool_(number != 0);
  return py::cast(number);
}

template <class Float>
py::object complex_at(const char* at) {
  Float parts[2];
  std::memcpy(parts, at, sizeof parts);
  return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(parts[0], parts[1]));
}

// Nested lists of the elements from `axis` on; the element itself if there is no such axis.
template <class Read>
py::object nested(const TensorObject& self, Read read, const char* at, std::size_t axis = 0) {
  if (axis == self.rank()) return read(at);
  const std::ptrdiff_t step = self.strides()[axis] * static_cast<std::ptrdiff_t>(item_size(self.dtype()));
  py::list items(static_cast<std::size_t>(self.shape()[axis]));
  for (std::size_t i = 0; i < items.size(); ++i, at += step) items[i] = nested(self, read, at, axis + 1);
  return std::move(items);
}

py::object to_list(const TensorObject& self) {
  require_cpu_memory(self.device(), "the tensor");
  py::object found;
  with_element(self.dtype(), [&](auto element) { found = nested(self, number_at<decltype(element)>, self.data()); });
  if (same_dtype(self.dtype(), dtype(kDLComplex, 64))) found = nested(self, complex_at<float>, self.data());
  if (same_dtype(self.dtype(), dtype(kDLComplex, 128))) found = nested(self, complex_at<double>, self.data());
  if (!found) throw Error(ErrorCode::kDataType, "Python has no numbers for the elements of " + show_tensor(self));
  return found;
}

py::object only_item(const TensorObject& self) {
  if (self.count() != 1)
    throw Error(ErrorCode::kDataType, "item() takes a tensor of one element, got " + show_tensor(self) +
                                          "; select one with an index, or use tolist()");
  py::object found = to_list(self);
  while (py::isinstance<py::list>(found)) found = py::list(found)[0];
  return found;
}

[[noreturn]] void throw_out_of_range(const std::string& message) {
  PyErr_SetString(py::module_::import("hami._errors").attr("OutOfRange").ptr(), message.c_str());
  throw py::error_already_set();
}

// The part of a tensor that an index selects; axes are consumed from the first to the last.
class Selection {
 public:
  explicit Selection(const TensorObject& tensor) : tensor_(tensor) {}

  void take(const py::handle& part) {
    if (PyIndex_Check(part.ptr()))
      take_one(part);
    else if (PySlice_Check(part.ptr()))
      take_slice(part);
    else
      throw Error(ErrorCode::kDataType,
                  "the index of a tensor takes ints, slices and ..., got " + python_type_name(part));
  }
  void take_all(std::size_t axes) {
    for (; axes > 0; --axes, ++axis_) keep(tensor_.shape()[axis_], tensor_.strides()[axis_]);
  }
  void take_rest() { take_all(tensor_.rank() - axis_); }
  bool is_element() const noexcept { return shape_.empty(); }
  Tensor view(const Tensor& whole) const { return make_view(whole, shape_, strides_, first_); }

 private:
  void keep(std::int64_t size, std::int64_t stride) {
    shape_.push_back(size);
    strides_.push_back(stride);
  }
  void take_one(const py::handle& part) {
    const Py_ssize_t given = PyNumber_AsSsize_t(part.ptr(), nullptr);
    if (given == -1 && PyErr_Occurred()) throw py::error_already_set();
    const std::int64_t size = tensor_.shape()[axis_];
    if (given < -size || given >= size)
      throw_out_of_range("index " + std::to_string(given) + " is out of range for axis " + std::to_string(axis_) +
                         " of " + show_tensor(tensor_));
    first_ += (given < 0 ? given + size : given) * tensor_.strides()[axis_];
    ++axis_;
  }
  void take_slice(const py::handle& part) {
    Py_ssize_t start = 0;
    Py_ssize_t stop = 0;
    Py_ssize_t step = 0;
    if (PySlice_Unpack(part.ptr(), &start, &stop, &step) < 0) throw py::error_already_set();
    const Py_ssize_t size = PySlice_AdjustIndices(tensor_.shape()[axis_], &start, &stop, step);
    if (size > 0) first_ += start * tensor_.strides()[axis_];
    keep(size, tensor_.strides()[axis_] * step);
    ++axis_;
  }

  const TensorObject& tensor_;
  std::size_t axis_ = 0;
  Shape shape_;
  Shape strides_;
  std::int64_t first_ = 0;
};

py::object get_item(const Tensor& self, const py::object& index) {
  const py::tuple parts = py::isinstance<py::tuple>(index) ? py::tuple(index) : py::make_tuple(index);
  const auto is_ellipsis = [](py::handle part) { return part.ptr() == Py_Ellipsis; };
  const auto ellipses = static_cast<std::size_t>(std::count_if(parts.begin(), parts.end(), is_ellipsis));
  const std::size_t axes = parts.size() - ellipses;
  if (axes > self->rank() || ellipses > 1)
    throw_out_of_range("an index of " + std::to_string(axes) + (axes == 1 ? " axis" : " axes") +
                       (ellipses > 1 ? " and several ... " : " ") + "does not fit " + show_tensor(*self));
  Selection selection(*self);
  for (const py::handle part : parts) {
    if (is_ellipsis(part))
      selection.take_all(self->rank() - axes);
    else
      selection.take(part);
  }
  selection.take_rest();
  const Tensor view = selection.view(self);
  return selection.is_element() && ellipses == 0 ? to_list(*view) : py::cast(view);
}

// As device_tensor_adopt of the plugin ABI, from addresses.
Tensor adopt(std::uintptr_t managed, std::uintptr_t order) {
  auto* const tensor = reinterpret_cast<DLManagedTensorVersioned*>(managed);
  // Addresses that a native plugin of this process gives to its own Python part.
  const auto call = reinterpret_cast<hami_error* (*)(DLManagedTensorVersioned*, std::int64_t)>(order);
  if (!tensor) throw Error(ErrorCode::kInvalidArgument, "Tensor.adopt takes the address of a DLPack tensor, got 0");
  TensorObject::Order ordered;
  if (call) ordered = [tensor, call](std::int64_t stream) { throw_if(call(tensor, stream)); };
  return TensorObject::adopt_on_device(tensor, std::move(ordered));
}

// Calls a function of hami._runtime.tensors, which formats text or needs numpy.
template <class... Arguments>
py::object call_helper(const char* name, const Arguments&... arguments) {
  return py::module_::import("hami._runtime.tensors").attr(name)(arguments...);
}

}  // namespace

void register_tensor(py::module_& module) {
  make_import_names();
  module.def(
      "check_dlpack", check_capsule, py::arg("object"), py::arg("capsule"),
      "Raise DataTypeError if the DLPack capsule of an object is damaged, so that reading it could end the process.");
  module.def("bits_of_bfloat16", [](const Tensor& tensor) { return reinterpret(tensor, dtype(kDLUInt, 16)); },
             py::arg("tensor"), "Return the memory of a bfloat16 tensor as one of uint16.");
  module.def("bfloat16_of_bits", [](const py::object& array) {
    return reinterpret(tensor_from(array).as_tensor(), dtype(kDLBfloat, 16));
  }, py::arg("array"), "Return the memory of an array of uint16 as a tensor of bfloat16.");
  py::class_<TensorObject, Tensor> tensor(module, "Tensor", kTensorDoc, py::is_final(), py::buffer_protocol());
  keep_shared_objects<Tensor>(tensor);
  tensor.attr("__module__") = "hami";
  tensor.def_buffer(buffer)
      .def_property_readonly("shape", [](const TensorObject& self) { return py::tuple(py::cast(self.shape())); },
                             "The length of each axis, as a tuple.")
      .def_property_readonly("dtype", [](const TensorObject& self) { return dtype_name(self.dtype()); },
                             "The element type: \"float32\", \"int64\", \"bfloat16\", …")
      .def_property_readonly("device", [](const TensorObject& self) { return show_device(self.device()); },
                             "Where the memory is: \"cpu\", \"cuda:0\", …")
      .def_property_readonly("nbytes", &TensorObject::bytes, "The size of the elements in bytes.")
      .def("__dlpack__", dlpack, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none(),
           "Export the memory as a DLPack capsule, without a copy unless `copy` is true.")
      .def("__dlpack_device__",
           [](const TensorObject& self) {
    return py::make_tuple(static_cast<int>(self.device().device_type), self.device().device_id);
  }, "Return the DLPack device type and device id.")
      .def_static(
          "adopt", adopt, py::arg("managed"), py::arg("order") = 0,
          "Take ownership of a DLManagedTensorVersioned at an address, as `device_tensor_adopt` of the plugin ABI.")
      .def("tolist", to_list, "Return the elements as nested lists of numbers; one number if the tensor has no axes.")
      .def("item", only_item, "Return the only element as a number.")
      .def("__len__", length)
      .def(
          "__getitem__", get_item, py::arg("index"),
          "Select by ints, slices and `...`: a number if an int selects on every axis, else a tensor over the same memory.")
      .def("__array__",
           [](const py::object& self, const py::object& type, const py::object& copied) {
    return call_helper("as_array", self, type, copied);
  }, py::arg("dtype") = py::none(), py::arg("copy") = py::none(),
           "Return a numpy array, over the same memory if possible.")
      .def("__bool__", [](const TensorObject& self) { return py::bool_(only_item(self)); },
           "Return whether the only element is not zero.")
      .def("__hash__", [](const TensorObject& self) {
    return std::hash<const void*>()(&self);
  }).def("__repr__", [](const py::object& self) { return call_helper("show", self); });
  for (const char* name : {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"})
    tensor.def(name,
               [name](const py::object& self, const py::object& other) {
      return call_helper("compare", name, self, other);
    }, py::is_operator(), py::arg("other"),
               "Compare the elements with those of an array, a list or a number; needs numpy.");
}

}  // namespace hami::bind
