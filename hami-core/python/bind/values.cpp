// Python objects behind the core's value classes.
#include "values.hpp"

#include <pybind11/critical_section.h>

#include <mutex>

#include "base/error.hpp"
#include "core_objects.hpp"
#include "tensor.hpp"

namespace hami::bind {
namespace {

class PythonText final : public TextObject {
 public:
  PythonText(Kind kind, py::object object, std::string_view view) : TextObject(kind), object_(std::move(object)), view_(view) {}
  std::string_view view() const noexcept override { return view_; }
  void* foreign() const noexcept override { return object_.get().ptr(); }

 private:
  PyRef object_;
  std::string_view view_;
};

class PythonOpaque final : public OpaqueObject {
 public:
  explicit PythonOpaque(py::object object) : OpaqueObject("python.object"), object_(std::move(object)) {}
  void* foreign() const noexcept override { return object_.get().ptr(); }
  std::string type_name() const override {
    const HoldGil gil;
    return python_type_name(object_.get());
  }
  Value to_tensor() const override {
    const HoldGil gil;
    return tensor_from(object_.get());
  }

 private:
  PyRef object_;
};

// The list (or tuple) as it is when the core first looks into it.
class PythonList final : public ListObject {
 public:
  explicit PythonList(py::object object) : object_(std::move(object)) {}
  void* foreign() const noexcept override { return object_.get().ptr(); }
  std::size_t size() const override { return items().size(); }
  Value at(std::size_t index) const override { return items().at(index); }

 private:
  const std::vector<Value>& items() const {
    const HoldGil gil;  // before the mutex, always: whoever has the lock may wait for the mutex
    std::lock_guard lock(mutex_);
    if (!taken_) {
      for (py::handle item : object_.get()) items_.push_back(to_value(item));
      taken_ = true;
    }
    return items_;
  }

  PyRef object_;
  mutable std::mutex mutex_;  // guards items_, taken_
  mutable std::vector<Value> items_;
  mutable bool taken_ = false;
};

// Calls `take(key, value)` for each; `what` is whose keys they are, for messages.
template <class Take>
void read_dict(const py::dict& dict, const char* what, Take take) {
  const py::scoped_critical_section others_must_not_change_it(dict);
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict.ptr(), &position, &key, &item)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : nullptr;
    if (!text) {
      PyErr_Clear();
      throw Error(ErrorCode::kDataType, std::string("the keys of ") + what + " are str, got " + std::string(py::repr(key)));
    }
    take(std::string(text, static_cast<std::size_t>(size)), to_value(item));
  }
}

// The dict as it is when the core first looks into it.
class PythonMap final : public MapObject {
 public:
  explicit PythonMap(py::object object) : object_(std::move(object)) {}
  void* foreign() const noexcept override { return object_.get().ptr(); }

  const std::vector<std::pair<std::string, Value>>& entries() const override {
    const HoldGil gil;  // before the mutex, as above
    std::lock_guard lock(mutex_);
    if (!taken_) {
      std::vector<std::pair<std::string, Value>> entries;
      read_dict(py::reinterpret_borrow<py::dict>(object_.get()), "a dict that backends of the core look into",
                [&](std::string key, Value value) { entries.emplace_back(std::move(key), std::move(value)); });
      entries_ = std::move(entries);
      taken_ = true;
    }
    return entries_;
  }

 private:
  PyRef object_;
  mutable std::mutex mutex_;  // guards entries_, taken_
  mutable std::vector<std::pair<std::string, Value>> entries_;
  mutable bool taken_ = false;
};

Value text(Kind kind, py::handle object, const char* data, Py_ssize_t size) {
  return Value::adopt(new PythonText(kind, py::reinterpret_borrow<py::object>(object),
                                     std::string_view(data, static_cast<std::size_t>(size))));
}

}  // namespace

Value opaque(py::object object) { return Value::adopt(new PythonOpaque(std::move(object))); }

Value to_value(py::handle object) {
  PyObject* raw = object.ptr();
  if (raw == Py_None) return {};
  if (PyBool_Check(raw)) return Value(raw == Py_True);
  if (PyLong_CheckExact(raw)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(raw, &overflow);
    if (!overflow) return Value(static_cast<std::int64_t>(number));
  } else if (PyFloat_CheckExact(raw)) {
    return Value(PyFloat_AS_DOUBLE(raw));
  } else if (PyUnicode_Check(raw)) {
    Py_ssize_t size = 0;
    if (const char* data = PyUnicode_AsUTF8AndSize(raw, &size)) return text(Kind::kStr, object, data, size);
    PyErr_Clear();  // lone surrogates: no UTF-8, so nothing for the core to look into
  } else if (PyBytes_Check(raw)) {
    return text(Kind::kBytes, object, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw));
  } else if (PyList_CheckExact(raw) || PyTuple_CheckExact(raw)) {
    return Value::adopt(new PythonList(py::reinterpret_borrow<py::object>(object)));
  } else if (PyDict_CheckExact(raw)) {
    return Value::adopt(new PythonMap(py::reinterpret_borrow<py::object>(object)));
  }
  if (Object* own = core_object(object)) return Value::share(*own);
  return opaque(py::reinterpret_borrow<py::object>(object));
}

py::object to_python(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return py::none();
    case Kind::kBool: return py::bool_(value.as_bool());
    case Kind::kInt: return py::int_(value.as_int());
    case Kind::kFloat: return py::float_(value.as_float());
    default: break;
  }
  if (void* foreign = value.object()->foreign())
    return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(foreign));
  switch (value.kind()) {
    case Kind::kStr: return py::str(value.as_text().data(), value.as_text().size());
    case Kind::kBytes: return py::bytes(value.as_text().data(), value.as_text().size());
    case Kind::kList: {
      const ListObject& list = value.as_list();
      py::list made(list.size());
      for (std::size_t i = 0; i < list.size(); ++i) made[i] = to_python(list.at(i));
      return std::move(made);
    }
    case Kind::kDict: {
      py::dict made;
      for (const auto& [key, item] : value.as_dict().entries()) made[py::str(key)] = to_python(item);
      return std::move(made);
    }
    default:
      if (py::object own = from_core_object(*value.object())) return own;
      throw Error(ErrorCode::kDataType, std::string("a value of kind ") + kind_name(value.kind()) + " has no form in Python");
  }
}

Dict snapshot(const py::dict& dict) {
  Dict made;
  made.reserve(dict.size() + 1);
  read_dict(dict, "a request", [&](std::string key, Value value) { made.enter(std::move(key), std::move(value)); });
  return made;
}

void write_back(const Dict& from, py::dict& to) {
  for (const Dict::Entry& entry : from)
    if (entry.written && entry.key != kData) to[py::str(entry.key)] = to_python(entry.value);
}

}  // namespace hami::bind
