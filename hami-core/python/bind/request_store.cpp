// hami.types.RequestStore: the SDK's RequestStore with values of the core.
#include "request_store.hpp"

#include <pybind11/stl.h>

#include "errors.hpp"
#include "hami/sdk/request_store.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

constexpr const char* kStoreDoc = R"(A thread-safe store of values by request and key.

    store = hami.types.RequestStore()
    store.create("r1")
    store.insert("r1", "boxes", [1, 2])
    store.get("r1", "boxes")                 # [1, 2]

Request ids and keys are str or int; 7 and "7" differ. A key may be the index of a response. Methods raise NotFound for an
unknown request, and AlreadyExists for a request or key that exists.)";

StoreId id_of(py::handle object, const char* what) {
  PyObject* raw = object.ptr();
  if (PyUnicode_Check(raw)) {
    Py_ssize_t size = 0;
    if (const char* text = PyUnicode_AsUTF8AndSize(raw, &size))
      return std::string(text, static_cast<std::size_t>(size));
    PyErr_Clear();  // lone surrogates
  } else if (PyLong_Check(raw) && !PyBool_Check(raw)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(raw, &overflow);
    if (!overflow) return number;
  }
  throw Error(ErrorCode::kDataType, std::string(what) +
                                        " must be a str of valid Unicode or an int of at most 64 bits, got " +
                                        std::string(py::repr(object)));
}

StoreId request(py::handle object) { return id_of(object, "req_id"); }
StoreId key(py::handle object) { return id_of(object, "key"); }

py::object show_id(const StoreId& id) {
  return id.number() ? py::object(py::int_(*id.number())) : py::object(py::str(*id.text()));
}

py::object from_any(const std::any& stored) {
  if (const Value* value = std::any_cast<Value>(&stored)) return to_python(*value);
  throw Error(ErrorCode::kDataType, "the value was stored by C++ code as a type that cannot be converted to Python");
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
  store.for_each(request(req_id),
                 [&](const StoreId& name, const std::any& value) { function(show_id(name), from_any(value)); });
}

bool contains(const RequestStore& store, py::handle req_id, const std::optional<py::object>& name) {
  return name ? store.contains(request(req_id), key(*name)) : store.contains(request(req_id));
}

std::size_t size(const RequestStore& store, const std::optional<py::object>& req_id) {
  return req_id ? store.size(request(*req_id)) : store.size();
}

std::string show_store(const RequestStore& store) {
  return "<hami.types.RequestStore: " + std::to_string(store.size()) + (store.size() == 1 ? " request>" : " requests>");
}

// The SDK's RequestStore has its own exceptions, because it does not depend on hami::Error.
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
  keep_shared_objects<std::shared_ptr<RequestStore>>(store);
  store.attr("__module__") = "hami";
  const auto req_id = py::arg("req_id");
  const auto name = py::arg("key");
  const auto value = py::arg("value");
  store.def(py::init<>())
      .def("create", [](RequestStore& self, py::handle id) { self.create(request(id)); }, req_id,
           "Add a request. Raises AlreadyExists if it exists.")
      .def("insert",
           [](RequestStore& self, py::handle id, py::handle k, py::handle v) {
    self.insert(request(id), key(k), to_value(v));
  }, req_id, name, value,
           "Add a value. Raises NotFound for an unknown request, AlreadyExists if the request has the key.")
      .def("insert_or_assign",
           [](RequestStore& self, py::handle id, py::handle k, py::handle v) {
    return self.insert_or_assign(request(id), key(k), to_value(v));
  }, req_id, name, value,
           "Add or replace a value. Returns True if the key is new. Raises NotFound for an unknown request.")
      .def("get", get_value, req_id, name,
           "Return a value, or None if the request does not have the key. Raises NotFound for an unknown request.")
      .def("at",
           [](const RequestStore& self, py::handle id, py::handle k) { return from_any(self.at(request(id), key(k))); },
           req_id, name, "Return a value. Raises NotFound for an unknown request or key.")
      .def("take",
           [](RequestStore& self, py::handle id, py::handle k) { return from_any(self.take(request(id), key(k))); },
           req_id, name, "Remove a value and return it. Raises NotFound for an unknown request or key.")
      .def("contains", contains, req_id, py::arg("key") = py::none(),
           "Return whether the request exists or, with a key, whether it has the key.")
      .def(
          "erase", [](RequestStore& self, py::handle id, py::handle k) { return self.erase(request(id), key(k)); },
          req_id, name,
          "Remove a value. Returns False if the request does not have the key. Raises NotFound for an unknown request.")
      .def("remove", [](RequestStore& self, py::handle id) { return self.remove(request(id)); }, req_id,
           "Remove a request with all its values. Returns False if it does not exist.")
      .def("size", size, py::arg("req_id") = py::none(),
           "Return the number of requests or, with `req_id`, the number of values of one request.")
      .def("keys", keys_of, req_id,
           "Return the keys of a request, in no particular order. Raises NotFound for an unknown request.")
      .def("for_each", for_each, req_id, py::arg("function"),
           "Call `function(key, value)` for each value of a snapshot of a request. The function may use the store.")
      .def("clear", &RequestStore::clear, "Remove all requests.")
      .def("__repr__", show_store);
}

}  // namespace hami::bind
