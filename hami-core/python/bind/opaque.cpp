// hami.Opaque: what a native plugin left in a request for another one, as Python passes it on.
#include "value/value.hpp"
#include "core_objects.hpp"

namespace hami::bind {
namespace {

constexpr const char* kOpaqueDoc = R"(A value that only native plugins understand.

    request["image"]      # <hami.Opaque cv.mat>

Python passes it on as it came; `type_key` says which plugins know it.)";

}  // namespace

void register_opaque(py::module_& module) {
  py::class_<OpaqueObject, Ref<OpaqueObject>> opaque(module, "Opaque", kOpaqueDoc, py::is_final());
  opaque.attr("__module__") = "hami";
  opaque.def_property_readonly("type_key", &OpaqueObject::type_key, "What kind of thing it is.")
      .def("__repr__", [](const OpaqueObject& self) { return "<hami.Opaque " + std::string(self.type_key()) + ">"; });
}

}  // namespace hami::bind
