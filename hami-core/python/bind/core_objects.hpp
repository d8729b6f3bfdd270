// The core's own objects that Python sees as they are: an Event or a Queue is one object on both sides.
#pragma once

#include "base/counted.hpp"
#include "sync/event.hpp"
#include "sync/queue.hpp"
#include "gil.hpp"

PYBIND11_DECLARE_HOLDER_TYPE(T, hami::Ref<T>, true)

namespace hami::bind {

// The core's object behind a Python one, borrowed; null if there is none.
Object* core_object(py::handle object);
// The Python object that stands for a core's object: the one that is there, else a new one. Null if it has no such form.
py::object from_core_object(Object& object);

void register_core_objects(py::module_& module);
void register_event(py::module_& module);  // one file each
void register_queue(py::module_& module);
void register_opaque(py::module_& module);

}  // namespace hami::bind
