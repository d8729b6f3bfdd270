// hami.types.Opaque: a value of a native plugin that Python passes on unchanged.

#include "core_objects.hpp"
#include "value/api.hpp"

namespace hami::bind {
namespace {

constexpr const char* kOpaqueDoc = R"(A value that only native plugins can read.

    request["image"]      # <hami.types.Opaque cv.mat>

Python code can pass it on but not read it. `type_key` identifies the type: plugins that use the same key can read it.)";

}  // namespace

void register_opaque(py::module_& module) {
  py::class_<OpaqueObject, Ref<OpaqueObject>> opaque(module, "Opaque", kOpaqueDoc, py::is_final());
  keep_shared_objects<Ref<OpaqueObject>>(opaque);
  opaque.attr("__module__") = "hami";
  opaque.def_property_readonly("type_key", &OpaqueObject::type_key, "The identifier of the type, such as \"cv.mat\".")
      .def("__repr__",
           [](const OpaqueObject& self) { return "<hami.types.Opaque " + std::string(self.type_key()) + ">"; });
}

}  // namespace hami::bind
