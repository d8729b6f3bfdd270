// The core's own objects, such as Event and Queue: Python and the core share one object.
#pragma once

#include "gil.hpp"
#include "sync/api.hpp"

PYBIND11_DECLARE_HOLDER_TYPE(T, hami::Ref<T>, true)

namespace hami::bind {

// The core object behind a Python object, borrowed; null for any other Python object.
Object* core_object(py::handle object);
// The Python object for a core object, created if there is none yet. Null if the kind has no Python class.
py::object from_core_object(Object& object);

[[gnu::cold]] void register_core_objects(py::module_& module);
[[gnu::cold]] void register_event(py::module_& module);
[[gnu::cold]] void register_queue(py::module_& module);
[[gnu::cold]] void register_opaque(py::module_& module);
[[gnu::cold]] void register_backend_handle(py::module_& module);

}  // namespace hami::bind
