// hami.RequestStore: the store of the SDK, holding values as the core holds them.
#include "request_store.hpp"

#include <pybind11/stl.h>

#include "errors.hpp"
#include "hami/sdk/request_store.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kStoreDoc = R"(Values kept by request and key, or by request and number of a response; shared by threads.

    store = hami.RequestStore()
    store.create("r1")
    store.insert("r1", "boxes", [1, 2])
    store.get("r1", "boxes")                 # [1, 2]

Requests and keys are str or int; 7 and "7" are two of them. NotFound if a request is absent, AlreadyExists if what is
created or inserted is there.)";

StoreId id_of(py::handle object, const char* what) {
  PyObject* raw = object.ptr();
  if (PyUnicode_Check(raw)) {
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(raw, &size)) return std::string(text, static_cast<std::size_t>(size));
    PyErr_Clear();  // lone surrogates
  } else if (PyLong_Check(raw) && !PyBool_Check(raw)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(raw, &overflow);
    if (!overflow) return number;
  }
  throw Error(ErrorCode::kDataType,
              std::string(what) + " is a str (of valid Unicode) or an int of at most 64 bits, got " + std::string(py::repr(object)));
}

StoreId request(py::handle object) { return id_of(object, "req_id"); }
StoreId key(py::handle object) { return id_of(object, "a key"); }

py::object show_id(const StoreId& id) {
  return id.number() ? py::object(py::int_(*id.number())) : py::object(py::str(*id.text()));
}

py::object from_any(const std::any& stored) {
  if (const Value* value = std::any_cast<Value>(&stored)) return to_python(*value);
  throw Error(ErrorCode::kDataType, "this value was stored by C++ as a type that has no form in Python");
}

py::list keys_of(const RequestStore& store, py::handle req_id) {
  py::list list;
  for (const StoreId& name : store.keys(request(req_id))) list.append(show_id(name));
  return list;
}

py::object get_value(const RequestStore& store, py::handle req_id, py::handle name) {
  const std::optional<std::any> found = store.get(request(req_id), key(name));
  return found ? from_any(*found) : py::none();
}

void for_each(const RequestStore& store, py::handle req_id, const py::function& function) {
  store.for_each(request(req_id), [&](const StoreId& name, const std::any& value) { function(show_id(name), from_any(value)); });
}

bool contains(const RequestStore& store, py::handle req_id, const std::optional<py::object>& name) {
  return name ? store.contains(request(req_id), key(*name)) : store.contains(request(req_id));
}

std::size_t size(const RequestStore& store, const std::optional<py::object>& req_id) {
  return req_id ? store.size(request(*req_id)) : store.size();
}

std::string show_store(const RequestStore& store) {
  return "<hami.RequestStore: " + std::to_string(store.size()) + (store.size() == 1 ? " request>" : " requests>");
}

// The store knows no hami::Error.
void translate(std::exception_ptr thrown) {
  const auto set = [](ErrorCode code, const std::exception& error) {
    const py::object exception = to_exception(Error(code, error.what()));
    PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const RequestStore::NotFound& error) {
    set(ErrorCode::kNotFound, error);
  } catch (const RequestStore::AlreadyExists& error) {
    set(ErrorCode::kAlreadyExists, error);
  }
}

}  // namespace

void register_request_store(py::module_& module) {
  py::register_exception_translator(translate);
  py::class_<RequestStore, std::shared_ptr<RequestStore>> store(module, "RequestStore", kStoreDoc);
  store.attr("__module__") = "hami";
  const auto req_id = py::arg("req_id");
  const auto name = py::arg("key");
  const auto value = py::arg("value");
  store.def(py::init<>())
      .def("create", [](RequestStore& self, py::handle id) { self.create(request(id)); }, req_id,
           "Begin a request. Raises AlreadyExists if there is one.")
      .def("insert",
           [](RequestStore& self, py::handle id, py::handle k, py::handle v) { self.insert(request(id), key(k), to_value(v)); },
           req_id, name, value, "Add a value. Raises NotFound without the request, AlreadyExists if it has the key.")
      .def("insert_or_assign",
           [](RequestStore& self, py::handle id, py::handle k, py::handle v) {
             return self.insert_or_assign(request(id), key(k), to_value(v));
           },
           req_id, name, value, "Add or replace a value, and return whether it was added. Raises NotFound without the request.")
      .def("get", get_value, req_id, name, "Return a value, or None if the request has no such key. Raises NotFound without the request.")
      .def("at", [](const RequestStore& self, py::handle id, py::handle k) { return from_any(self.at(request(id), key(k))); },
           req_id, name, "Return a value. Raises NotFound without the request or the key.")
      .def("take", [](RequestStore& self, py::handle id, py::handle k) { return from_any(self.take(request(id), key(k))); },
           req_id, name, "Return a value and erase it. Raises NotFound without the request or the key.")
      .def("contains", contains, req_id, py::arg("key") = py::none(), "Whether there is the request; whether it has the key.")
      .def("erase", [](RequestStore& self, py::handle id, py::handle k) { return self.erase(request(id), key(k)); }, req_id, name,
           "Erase a value, and return whether there was one. Raises NotFound without the request.")
      .def("remove", [](RequestStore& self, py::handle id) { return self.remove(request(id)); }, req_id,
           "End a request with all its values, and return whether there was one.")
      .def("size", size, py::arg("req_id") = py::none(), "How many requests there are; how many values one of them has.")
      .def("keys", keys_of, req_id, "Return the keys of a request, in no particular order.")
      .def("for_each", for_each, req_id, py::arg("function"),
           "Call `function(key, value)` on a snapshot of a request; it may use the store.")
      .def("clear", &RequestStore::clear, "End all requests.")
      .def("__repr__", show_store);
}

}  // namespace hami::bind
