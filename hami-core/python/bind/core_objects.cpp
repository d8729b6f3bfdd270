// Identifies the core's own objects by their exact Python type; their classes are final.
#include "core_objects.hpp"

#include "backend_handle.hpp"
#include "tensor.hpp"

namespace hami::bind {
namespace {

// Borrowed from the module, which sets them when it is created.
py::handle event_type;
py::handle queue_type;
py::handle tensor_type;
py::handle opaque_type;
py::handle backend_handle_type;

}  // namespace

Object* core_object(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  if (type.is(event_type)) return object.cast<Event*>();
  if (type.is(queue_type)) return object.cast<Queue*>();
  if (type.is(tensor_type)) return object.cast<TensorObject*>();
  if (type.is(opaque_type)) return object.cast<OpaqueObject*>();
  if (type.is(backend_handle_type)) return object.cast<BackendHandle*>();
  return nullptr;
}

py::object from_core_object(Object& object) {
  if (auto* event = dynamic_cast<Event*>(&object)) return py::cast(Ref<Event>(event));
  if (auto* queue = dynamic_cast<Queue*>(&object)) return py::cast(Ref<Queue>(queue));
  if (auto* handle = dynamic_cast<BackendHandle*>(&object)) return py::cast(Ref<BackendHandle>(handle));
  if (object.kind() == Kind::kTensor) return py::cast(Tensor(static_cast<TensorObject*>(&object)));
  if (object.kind() == Kind::kOpaque) return py::cast(Ref<OpaqueObject>(static_cast<OpaqueObject*>(&object)));
  return {};
}

void register_core_objects(py::module_& module) {
  register_event(module);
  register_queue(module);
  register_tensor(module);
  register_opaque(module);
  register_backend_handle(module);
  event_type = py::type::of<Event>();
  queue_type = py::type::of<Queue>();
  tensor_type = py::type::of<TensorObject>();
  opaque_type = py::type::of<OpaqueObject>();
  backend_handle_type = py::type::of<BackendHandle>();
}

}  // namespace hami::bind
