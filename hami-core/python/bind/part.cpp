// Part, and the two functions that give and take parts.
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

constexpr const char* kScatterDoc = R"(Give each request of a batch its part of one value, as its `result` or under another key.

    scores = self.net(np.stack([item["data"] for item in batch]))
    hami.scatter(batch, scores)                       # item["result"] is then scores[0], scores[1], …

`parts` is any sequence with as many parts as the batch has requests; each part is an array or a tensor, in a list or tuple
anything. A part is taken, by parts[i], when somebody looks at it, once, on any thread. A backend that takes the batch next
gets `parts` back with hami.scattered, so that nothing is taken apart between the two.
In a batch of plain dicts, as in a test of a backend, each has its part at once.

Raises DataTypeError if `parts` is no sequence or has another length.)";

constexpr const char* kScatteredDoc = R"(Return what was given to just these requests, in this order, by hami.scatter; None if there is no such thing.

    parts = hami.scattered(batch)                     # of item["data"]
    rows = parts if parts is not None else np.stack([item["data"] for item in batch])

None also when somebody looked at one of the parts, and may have changed it.)";

py::object item_at(py::handle parts, std::size_t index) {
  PyObject* item = PySequence_GetItem(parts.ptr(), static_cast<Py_ssize_t>(index));
  if (!item) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(item);
}

// The view of a request; null for a plain dict.
RequestView* view_in(py::handle item, const char* owner) {
  if (py::isinstance<RequestView>(item)) return &py::cast<RequestView&>(item);
  if (PyDict_Check(item.ptr())) return nullptr;
  throw Error(ErrorCode::kDataType, std::string(owner) + " takes the requests of a batch, got " + std::string(py::repr(item)));
}

// A part that nobody has taken yet; what the core reads itself it has at once, from a list that holds it anyhow.
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
    const std::string given = count < 0 ? "" : " of " + std::to_string(count);
    throw Error(ErrorCode::kDataType, "scatter takes a sequence with one part for each of " + std::to_string(batch.size()) +
                                          " requests, got " + python_type_name(parts) + given);
  }
  std::vector<std::pair<py::object, RequestView*>> items;  // the list itself is open to whoever has it
  for (py::handle item : batch) items.emplace_back(py::reinterpret_borrow<py::object>(item), view_in(item, "scatter"));
  const auto held = std::make_shared<PyRef>(parts);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [item, view] = items[i];
    Value part = part_at(held, i);
    if (view)
      view->with([&](Dict& dict) { return dict.exchange(key, std::move(part)); });
    else
      item[py::str(key)] = to_python(part);
  }
}

py::object scattered(const py::list& batch, const std::string& key) {
  py::object parts;
  std::size_t at = 0;
  for (py::handle item : batch) {
    const RequestView* view = view_in(item, "scattered");
    if (!view) return py::none();
    const bool follows = view->with([&](const Dict& dict) {
      const Value* value = dict.find(key);
      const Part* part = value ? Part::in(*value) : nullptr;
      PyObject* untouched = part && part->index() == at ? part->untouched_parts() : nullptr;
      if (at++ == 0) parts = py::reinterpret_borrow<py::object>(untouched);
      return untouched && untouched == parts.ptr();
    });
    if (!follows) return py::none();
  }
  return parts && py::len(parts) == at ? parts : py::none();
}

}  // namespace

Part::Part(std::shared_ptr<PyRef> parts, std::size_t index) noexcept
    : OpaqueObject("python.object"), parts_(std::move(parts)), index_(index) {}

Part::~Part() {
  if (PyObject* seen = seen_.load(std::memory_order_relaxed)) drop(seen);
}

const Part* Part::in(const Value& value) noexcept {
  return value.kind() == Kind::kOpaque ? dynamic_cast<const Part*>(value.object()) : nullptr;
}

py::object Part::look() const {
  if (void* seen = foreign()) return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(seen));
  const py::object made = item_at(parts_->get(), index_);
  if (is_read_by_core(made))  // and the core was told that it is not
    throw Error(ErrorCode::kDataType,
                "a part of what hami.scatter gives is an array or a tensor, got " + python_type_name(made));
  PyObject* first = nullptr;
  if (!seen_.compare_exchange_strong(first, made.ptr(), std::memory_order_acq_rel))
    return py::reinterpret_borrow<py::object>(first);  // of two that made it at once, one counts
  return py::reinterpret_borrow<py::object>(made.inc_ref());
}

void* Part::pointer() const noexcept {
  const HoldGil gil;
  try {
    return look().ptr();
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: a part of what hami.scatter gave");
  } catch (const std::exception&) {  // who asks gets nothing, and says so
  }
  return nullptr;
}

std::string Part::type_name() const {
  const HoldGil gil;
  PyObject* const seen = static_cast<PyObject*>(pointer());
  return seen ? python_type_name(seen) : OpaqueObject::type_name();
}

Value Part::to_tensor() const {
  const HoldGil gil;
  try {
    const py::object part = look();
    const Value value = to_value(part);
    return value.kind() == Kind::kTensor ? value : tensor_from(part);
  } catch (py::error_already_set& raised) {
    throw from_python(raised);
  }
}

void register_parts(py::module_& module) {
  module.def("scatter", scatter, py::arg("batch"), py::arg("parts"), py::arg("key") = std::string(kResult), kScatterDoc);
  module.def("scattered", scattered, py::arg("batch"), py::arg("key") = std::string(kData), kScatteredDoc);
}

}  // namespace hami::bind
