// The core's value classes over Python objects.
#include "values.hpp"

#include <pybind11/critical_section.h>

#include <atomic>
#include <optional>

#include "core_objects.hpp"
#include "errors.hpp"
#include "made_on_read.hpp"
#include "tensor.hpp"

namespace hami::bind {
namespace {

class PythonText final : public TextObject {
 public:
  PythonText(Kind kind, py::object object, std::string_view view)
      : TextObject(kind), object_(std::move(object)), view_(view) {}
  std::string_view view() const noexcept override { return view_; }
  void* foreign() const noexcept override { return object_.get().ptr(); }

 private:
  PyRef object_;
  std::string_view view_;
};

class PythonOpaque final : public OpaqueObject {
 public:
  explicit PythonOpaque(py::object object) : OpaqueObject("python.object"), object_(std::move(object)) {}
  // If backends read the arrays or device tensors of requests, the tensor is made at once, while the GIL is held.
  static bool is_read_at_once(py::handle object) noexcept {
    return is_array(object) || (device_tensors_are_read_.load(std::memory_order_relaxed) && has_exchange_api(object));
  }
  static Value of_request(py::object object) {
    auto* const made = new PythonOpaque(std::move(object));
    Value value = Value::adopt(made);
    const py::handle given = made->object_.get();
    if (!is_array(given))
      made->tensor_ = device_tensor_at_once(given, kDefaultStream);
    else if (arrays_are_read_.load(std::memory_order_relaxed))
      made->tensor_ = array_as_tensor(given);
    return value;
  }
  ~PythonOpaque() override {
    if (tensor_.kind() == Kind::kNone || was_read_.load(std::memory_order_relaxed)) return;
    (is_on_device() ? device_tensors_are_read_ : arrays_are_read_).store(false, std::memory_order_relaxed);
  }
  void* foreign() const noexcept override { return object_.get().ptr(); }
  std::string type_name() const override {
    const HoldGil gil;
    return python_type_name(object_.get());
  }
  Value to_tensor() const override {
    if (tensor_.kind() != Kind::kNone && !is_on_device()) {
      was_read_.store(true, std::memory_order_relaxed);
      return tensor_;
    }
    const HoldGil gil;
    if (is_array(object_.get())) arrays_are_read_.store(true, std::memory_order_relaxed);
    return tensor_from(object_.get());
  }
  DLDevice device() const override { return device_of_tensor(object_.get()); }
  Value to_device_tensor(std::int64_t stream) const override {
    if (stream == kDefaultStream && tensor_.kind() != Kind::kNone && is_on_device()) {
      was_read_.store(true, std::memory_order_relaxed);
      return tensor_;
    }
    const HoldGil gil;
    if (stream == kDefaultStream && has_exchange_api(object_.get()))
      device_tensors_are_read_.store(true, std::memory_order_relaxed);
    return tensor_from(object_.get(), stream);
  }

 private:
  bool is_on_device() const noexcept {
    return !is_cpu_memory(static_cast<const TensorObject*>(tensor_.object())->device());
  }

  // Guesses for the next request: whether a backend has read the array, or the device tensor, of the last ones as a tensor.
  static inline std::atomic<bool> arrays_are_read_{false};
  static inline std::atomic<bool> device_tensors_are_read_{false};

  PyRef object_;
  Value tensor_;  // never changed after construction
  mutable std::atomic<bool> was_read_{false};
};

// The same as to_value, for what a request holds.
Value request_value(py::handle object, std::size_t nesting) {
  return PythonOpaque::is_read_at_once(object) ? PythonOpaque::of_request(py::reinterpret_borrow<py::object>(object))
                                               : to_value(object, nesting);
}

// The items of a Python container, read when the core first accesses them. Reading runs user code, which may release
// the GIL, so no mutex is held meanwhile. If two threads read concurrently, the first result is kept.
template <class Items>
class LazySnapshot {
 public:
  template <class Read>
  const Items& items(Read read) const {
    {
      MutexLock lock(mutex_);
      if (items_) return *items_;
    }
    const HoldGil gil;
    Items fresh = read_items(read);  // declared before the lock: its destructor may run user code
    MutexLock lock(mutex_);
    if (!items_) items_ = std::move(fresh);
    return *items_;
  }

 private:
  template <class Read>
  static Items read_items(const Read& read) {
    try {
      return read();
    } catch (...) {
      rethrow_python_error();
    }
  }

  mutable Mutex mutex_;
  mutable std::optional<Items> items_ HAMI_GUARDED_BY(mutex_);
};

// A snapshot of a list or tuple, taken when the core first accesses it.
class PythonList final : public ListObject {
 public:
  PythonList(py::object object, std::size_t nesting) : object_(std::move(object)), nesting_(nesting) {}
  void* foreign() const noexcept override { return object_.get().ptr(); }
  std::size_t size() const override { return items().size(); }
  Value at(std::size_t index) const override { return items().at(index); }

 private:
  const std::vector<Value>& items() const {
    return snapshot_.items([this] {
      std::vector<Value> found;
      for (py::handle item : object_.get()) found.push_back(request_value(item, nesting_ + 1));
      return found;
    });
  }

  PyRef object_;
  const std::size_t nesting_;
  LazySnapshot<std::vector<Value>> snapshot_;
};

// Calls `visit(key, value)` for each entry; `what` names the dict in messages, `nesting` is that of the values. Another
// thread may change the dict whenever this one waits, so the entry being read is kept alive.
template <class Visit>
void read_dict(const py::dict& dict, const char* what, std::size_t nesting, Visit visit) {
  const py::scoped_critical_section exclusive(dict);
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict.ptr(), &position, &key, &item)) {
    const auto held_key = py::reinterpret_borrow<py::object>(key);
    const auto held_item = py::reinterpret_borrow<py::object>(item);
    visit(key_of(held_key, what), request_value(held_item, nesting));
  }
}

// A snapshot of a dict, taken when the core first accesses it.
class PythonMap final : public MapObject {
 public:
  PythonMap(py::object object, std::size_t nesting) : object_(std::move(object)), nesting_(nesting) {}
  void* foreign() const noexcept override { return object_.get().ptr(); }

  using Entries = std::vector<std::pair<std::string, Value>>;

  const Entries& entries() const override {
    return snapshot_.items([this] {
      Entries found;
      const auto dict = py::reinterpret_borrow<py::dict>(object_.get());
      read_dict(dict, "a dict that the core reads", nesting_ + 1,
                [&](std::string key, Value value) { found.emplace_back(std::move(key), std::move(value)); });
      return found;
    });
  }

 private:
  PyRef object_;
  const std::size_t nesting_;
  LazySnapshot<Entries> snapshot_;
};

Value text(Kind kind, py::handle object, const char* data, Py_ssize_t size) {
  return Value::adopt(new PythonText(kind, py::reinterpret_borrow<py::object>(object),
                                     std::string_view(data, static_cast<std::size_t>(size))));
}

py::list python_list(const ListObject& list) {
  py::list converted(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) converted[i] = to_python(list.at(i));
  return converted;
}

py::dict python_dict(const MapObject& map) {
  py::dict converted;
  for (const auto& [key, item] : map.entries()) converted[py::str(key)] = to_python(item);
  return converted;
}

}  // namespace

Value opaque(py::object object) { return Value::adopt(new PythonOpaque(std::move(object))); }

std::string key_of(py::handle key, const char* what) {
  HAMI_ASSERT(has_gil());
  const bool is_str = PyUnicode_Check(key.ptr());
  Py_ssize_t size = 0;
  if (const char* text = is_str ? PyUnicode_AsUTF8AndSize(key.ptr(), &size) : nullptr)
    return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  throw Error(ErrorCode::kDataType, std::string("the keys of ") + what + " must be str" +
                                        (is_str ? " of valid Unicode" : "") + ", got " + std::string(py::repr(key)));
}

bool is_read_by_core(py::handle object) noexcept {
  PyObject* raw = object.ptr();
  return raw == Py_None || PyBool_Check(raw) || PyLong_CheckExact(raw) || PyFloat_CheckExact(raw) ||
         PyUnicode_Check(raw) || PyBytes_Check(raw) || PyList_CheckExact(raw) || PyTuple_CheckExact(raw) ||
         PyDict_CheckExact(raw);
}

Value to_value(py::handle object, std::size_t nesting) {
  HAMI_ASSERT(has_gil());
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
    PyErr_Clear();  // lone surrogates have no UTF-8 form: the str is opaque
  } else if (PyBytes_Check(raw)) {
    return text(Kind::kBytes, object, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw));
  } else if (PyList_CheckExact(raw) || PyTuple_CheckExact(raw)) {
    check_nesting(nesting);
    return Value::adopt(new PythonList(py::reinterpret_borrow<py::object>(object), nesting));
  } else if (PyDict_CheckExact(raw)) {
    check_nesting(nesting);
    return Value::adopt(new PythonMap(py::reinterpret_borrow<py::object>(object), nesting));
  }
  if (Object* shared = core_object(object)) return Value::share(*shared);
  return opaque(py::reinterpret_borrow<py::object>(object));
}

py::object to_python(const Value& value) {
  HAMI_ASSERT(has_gil());
  switch (value.kind()) {
    case Kind::kNone: return py::none();
    case Kind::kBool: return py::bool_(value.as_bool());
    case Kind::kInt: return py::int_(value.as_int());
    case Kind::kFloat: return py::float_(value.as_float());
    default: break;
  }
  if (!value.is_counted())
    throw Error(ErrorCode::kDataType, "a value of kind " + std::to_string(static_cast<std::int32_t>(value.kind())) +
                                          " cannot be converted to Python: its plugin needs a newer hami-core");
  if (void* foreign = value.object()->foreign())
    return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(foreign));
  switch (value.kind()) {
    case Kind::kStr: return py::str(value.as_text().data(), value.as_text().size());
    case Kind::kBytes: return py::bytes(value.as_text().data(), value.as_text().size());
    case Kind::kList: return python_list(value.as_list());
    case Kind::kDict: return python_dict(value.as_dict());
    default:
      if (const MadeOnRead* made = MadeOnRead::from(value)) return made->get();
      if (py::object object = from_core_object(*value.object())) return object;
      throw Error(ErrorCode::kDataType,
                  std::string("a value of kind ") + kind_name(value.kind()) + " cannot be converted to Python");
  }
}

Dict snapshot(const py::dict& dict) {
  Dict copy;
  copy.reserve(dict.size() + 1);  // + 1 for `result`
  read_dict(dict, "a request", 1, [&](std::string key, Value value) { copy.enter(std::move(key), std::move(value)); });
  return copy;
}

py::handle interned(const char* name) {
  PyObject* const text = PyUnicode_InternFromString(name);
  if (!text) throw py::error_already_set();
  return text;
}

namespace {
py::handle interned_result;
}

py::handle result_key() noexcept { return interned_result; }
void make_result_key() { interned_result = interned(kResult.data()); }

void write_back(const Dict& from, py::dict& to) {
  for (const Dict::Entry& entry : from) {
    if (!entry.written || entry.key == kData) continue;
    const py::object value = to_python(entry.value);
    to[entry.key == kResult ? py::reinterpret_borrow<py::object>(result_key()) : py::str(entry.key)] = value;
  }
}

}  // namespace hami::bind
