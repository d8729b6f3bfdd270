// Part, hami.batching.scatter and hami.batching.scattered.
#include "part.hpp"

#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "request_view.hpp"
#include "tensor.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kScatterDoc =
    R"(Set parts[i] as the `result` (or another key) of request i, for every request of a batch.

    scores = self.net(np.stack([item["data"] for item in batch]))
    hami.batching.scatter(batch, scores)                       # item["result"] is now scores[0], scores[1], …

parts[i] is evaluated only when request i's value is first read, once, on any thread. If the next backend receives the same
batch, it gets the whole of `parts` back from scattered, without splitting and stacking. In a batch of plain dicts, as in
a unit test of a backend, the parts are set at once.

Args:
    batch: The requests of a batch.
    parts: A sequence with one part per request. Each part is an array or a tensor; a list or a tuple may hold any values.
    key: The key to set.

Raises:
    DataTypeError: `parts` is not a sequence or its length differs from the batch.)";

constexpr const char* kScatteredDoc =
    R"(Return the sequence that scatter split over exactly these requests, in this order; otherwise None.

    parts = hami.batching.scattered(batch)                     # the values of item["data"]
    rows = parts if parts is not None else np.stack([item["data"] for item in batch])

Also returns None if any part has been read, because the reader may have changed it.

Args:
    batch: The requests of a batch.
    key: The key that holds the parts.)";

py::object item_at(py::handle parts, std::size_t index) {
  PyObject* item = PySequence_GetItem(parts.ptr(), static_cast<Py_ssize_t>(index));
  if (!item) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(item);
}

// The view that `item` is; null for a plain dict. `function` names the caller in messages.
RequestView* view_in(py::handle item, const char* function) {
  if (py::isinstance<RequestView>(item)) return &py::cast<RequestView&>(item);
  if (PyDict_Check(item.ptr())) return nullptr;
  throw Error(ErrorCode::kDataType,
              std::string(function) + "() takes the requests of a batch, got " + std::string(py::repr(item)));
}

// An unread part. An item of a list or tuple that the core can read is converted at once: it exists already.
Value part_at(const std::shared_ptr<PyRef>& parts, std::size_t index) {
  const py::handle all = parts->get();
  if (PyList_CheckExact(all.ptr()) || PyTuple_CheckExact(all.ptr())) {
    const py::object part = item_at(all, index);
    if (is_read_by_core(part)) return to_value(part);
  }
  return Value::adopt(new Part(parts, index));
}

void scatter(const py::list& batch, const py::object& parts, const std::string& key) {
  const Py_ssize_t count = PySequence_Check(parts.ptr()) ? PySequence_Size(parts.ptr()) : -1;
  if (PyErr_Occurred()) throw py::error_already_set();
  if (count != static_cast<Py_ssize_t>(batch.size())) {
    const std::string length = count < 0 ? "" : " of length " + std::to_string(count);
    throw Error(ErrorCode::kDataType, "scatter() takes a sequence with one part for each of " +
                                          std::to_string(batch.size()) + " requests, got " + python_type_name(parts) +
                                          length);
  }
  std::vector<std::pair<py::object, RequestView*>> items;  // a copy: converting may run code that changes `batch`
  for (py::handle item : batch) items.emplace_back(py::reinterpret_borrow<py::object>(item), view_in(item, "scatter"));
  const auto shared_parts = std::make_shared<PyRef>(parts);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [item, view] = items[i];
    Value part = part_at(shared_parts, i);
    if (view)
      view->with([&](Dict& dict) { return dict.exchange(key, std::move(part)); });
    else
      item[py::str(key)] = to_python(part);
  }
}

py::object scattered(const py::list& batch, const std::string& key) {
  py::object parts;
  std::size_t next_index = 0;
  for (py::handle item : batch) {
    const RequestView* view = view_in(item, "scattered");
    if (!view) return py::none();
    const bool in_order = view->with([&](const Dict& dict) {
      const Value* value = dict.find(key);
      const Part* part = value ? Part::from(*value) : nullptr;
      PyObject* unread = part && part->index() == next_index ? part->parts_if_unread() : nullptr;
      if (next_index++ == 0) parts = py::reinterpret_borrow<py::object>(unread);
      return unread && unread == parts.ptr();
    });
    if (!in_order) return py::none();
  }
  return parts && py::len(parts) == next_index ? parts : py::none();
}

}  // namespace

Part::Part(std::shared_ptr<PyRef> parts, std::size_t index) noexcept : parts_(std::move(parts)), index_(index) {}

const Part* Part::from(const Value& value) noexcept {
  return value.kind() == Kind::kOpaque ? dynamic_cast<const Part*>(value.object()) : nullptr;
}

py::object Part::make() const {
  const py::object part = item_at(parts_->get(), index_);
  if (is_read_by_core(part))  // too late: this value already has the kind kOpaque
    throw Error(ErrorCode::kDataType, "a part given to hami.batching.scatter must be an array or a tensor, got " +
                                          python_type_name(part) + "; pass a list or a tuple for other values");
  return part;
}

Value Part::to_tensor() const { return exported(std::nullopt); }

DLDevice Part::device() const {
  PyObject* const part = static_cast<PyObject*>(pointer());
  return part ? device_of_tensor(part) : OpaqueObject::device();
}

Value Part::to_device_tensor(std::int64_t stream) const { return exported(stream); }

Value Part::exported(std::optional<std::int64_t> stream) const {
  const HoldGil gil;
  try {
    const py::object part = get();
    const Value value = to_value(part);
    if (value.kind() != Kind::kTensor) return tensor_from(part, stream);
    return to_value(stream ? value.as_device_tensor(*stream) : value.as_tensor());
  } catch (...) {
    rethrow_python_error();
  }
}

void register_parts(py::module_& module) {
  module.def("scatter", scatter, py::arg("batch"), py::arg("parts"), py::arg("key") = std::string(kResult),
             kScatterDoc);
  module.def("scattered", scattered, py::arg("batch"), py::arg("key") = std::string(kData), kScatteredDoc);
}

}  // namespace hami::bind
