// The type slots of DictView, which RequestView inherits.
#include "view_slots.hpp"

#include <optional>
#include <string>

#include "errors.hpp"
#include "request_view.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr PyObject* kRaised = nullptr;

// The address of a RequestView is that of its DictView base, as pybind11 assumes too.
const DictView& view_of(PyObject* self) {
  const auto* view = object_in<const DictView>(self);
  if (!view) throw py::type_error("objects of this class are created only by hami-core");
  return *view;
}

std::optional<Value> find(const DictView& view, const std::string& key) {
  return view.with([&](const Dict& dict) {
    const Value* value = dict.find(key);
    return value ? std::optional(*value) : std::nullopt;
  });
}

// Runs access(). Converts a C++ exception to a Python exception and returns `failed`.
template <class Access, class Result>
Result guarded(Result failed, Access access) noexcept {
  try {
    return access();
  } catch (...) {
    set_python_error();
  }
  return failed;
}

Py_ssize_t length(PyObject* self) noexcept {
  const auto size = [](const Dict& dict) { return static_cast<Py_ssize_t>(dict.size()); };
  return guarded(Py_ssize_t{-1}, [&] { return view_of(self).with(size); });
}

PyObject* get_item(PyObject* self, PyObject* key) noexcept {
  return guarded(kRaised, [&]() -> PyObject* {
    if (const auto value = find(view_of(self), key_of(key))) return to_python(*value).release().ptr();
    PyErr_SetObject(PyExc_KeyError, key);
    return nullptr;
  });
}

// view[key] = value; del view[key] if `value` is null.
int set_item(PyObject* self, PyObject* key, PyObject* value) noexcept {
  return guarded(-1, [&] {
    const DictView& view = view_of(self);
    const std::string name = key_of(key);
    if (value) {
      Value converted = to_value(value);
      view.with([&](Dict& dict) { return dict.exchange(name, std::move(converted)); });
    } else if (!view.with([&](Dict& dict) { return dict.take(name); })) {
      PyErr_SetObject(PyExc_KeyError, key);
      return -1;
    }
    return 0;
  });
}

int contains(PyObject* self, PyObject* key) noexcept {
  return guarded(-1, [&] {
    if (!PyUnicode_Check(key)) return 0;
    const std::string name = key_of(key);
    return view_of(self).with([&](const Dict& dict) { return dict.contains(name) ? 1 : 0; });
  });
}

PyObject* get(PyObject* self, PyObject* const* given, Py_ssize_t count, PyObject* names) noexcept {
  return guarded(kRaised, [&]() -> PyObject* {
    const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    const bool by_name = named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "default") == 0;
    if (count < 1 || count + named > 2 || (named > 0 && !by_name))
      throw py::type_error("get() takes a key and an optional default");
    if (const auto value = find(view_of(self), key_of(given[0]))) return to_python(*value).release().ptr();
    return py::reinterpret_borrow<py::object>(count + named > 1 ? given[1] : Py_None).release().ptr();
  });
}

PyMethodDef methods[] = {
    {"get", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(get)), METH_FASTCALL | METH_KEYWORDS,
     "get($self, key, /, default=None)\n--\n\nReturn the value of a key, or `default` if the key is missing."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

py::custom_type_setup view_slots() {
  return py::custom_type_setup([](PyHeapTypeObject* type) {
    type->as_mapping.mp_length = length;
    type->as_mapping.mp_subscript = get_item;
    type->as_mapping.mp_ass_subscript = set_item;
    type->as_sequence.sq_contains = contains;
    type->ht_type.tp_methods = methods;
  });
}

}  // namespace hami::bind
