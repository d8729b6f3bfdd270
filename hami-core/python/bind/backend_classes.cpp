// Handles of backend classes: those written in Python are declared here, others are described, copied and found.
#include "backend_classes.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "container/api.hpp"
#include "errors.hpp"
#include "lang/api.hpp"
#include "python_backend.hpp"
#include "registry/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// The trait of a class whose instances run in processes of their own, and the container that runs them; a plugin has it.
constexpr const char* kProcess = "process";
constexpr const char* kProcessContainer = "Process";

// Initialises `check`, with the parameters of both, before the backend itself.
class CheckedBackend final : public Forwarding {
 public:
  CheckedBackend(BackendPtr check, BackendPtr target) : check_(std::move(check)) { target_ = std::move(target); }

 private:
  void init_(Init& init) override {
    check_->describe(label(), traits());
    std::exchange(check_, nullptr)->init(init);
    target_->describe(label(), traits());
    target_->init(init);
  }

  BackendPtr check_;
};

// Converts a default value. Durations are seconds in Python and milliseconds in the core.
Value default_of(const ParamSpec& spec, py::handle given, const std::string& owner) {
  const bool is_number =
      py::isinstance<py::float_>(given) || (py::isinstance<py::int_>(given) && !py::isinstance<py::bool_>(given));
  if (spec.type == ParamType::kDuration && is_number)
    return coerce_param(spec, Value(show_duration(given.cast<double>() * 1e3)), owner);
  return coerce_param(spec, to_value(given), owner);
}

[[gnu::cold]] ParamSpec spec_of(const py::dict& given) {
  ParamSpec spec;
  spec.name = given["name"].cast<std::string>();
  spec.aliases = given["aliases"].cast<std::vector<std::string>>();
  spec.type = *param_type_of(given["type"].cast<std::string>());
  spec.required = given["required"].cast<bool>();
  spec.choices = given["choices"].cast<std::vector<std::string>>();
  if (!spec.required && !given["default"].is_none()) {
    spec.fallback = default_of(spec, given["default"], "its class");
  }
  spec.help = given["help"].cast<std::string>();
  return spec;
}

[[gnu::cold]] ClassHandle python_class(py::object cls, const std::string& name, const std::string& owner,
                                       const std::string& doc, const std::string& batch_range,
                                       const std::vector<py::dict>& params,
                                       const std::map<std::string, std::string>& attributes, const std::string& thread,
                                       bool non_blocking, bool idempotent, bool lightweight,
                                       std::int64_t instances_on_device, bool by_device, bool outlines_items,
                                       const std::pair<std::size_t, std::optional<std::size_t>>& child_count,
                                       bool takes_all_keys, bool is_instance) {
  BackendClass result;
  result.name = name;
  result.owner = owner;
  result.doc = doc;
  result.range = batch_range;
  for (const py::dict& param : params) result.params.push_back(spec_of(param));
  if (thread == kProcess)
    result.runs_in = kProcessContainer;
  else
    result.traits.thread = *thread_mode_of(thread);
  result.traits.non_blocking = non_blocking;
  result.traits.idempotent = idempotent;
  result.traits.lightweight = lightweight;
  result.traits.instances_on_device = instances_on_device;
  result.outlines_items = outlines_items;
  if (by_device) result.by_device = DeviceChoice::kEachRequest;
  result.takes_all_keys = takes_all_keys;
  result.is_instance = is_instance;
  result.uses_python = true;
  const auto [min_children, max_children] = child_count;
  const std::size_t most = max_children.value_or(Phase::kMany);
  if (most > 0) result.brackets = {min_children > 0, {Phase{std::max<std::size_t>(1, min_children), most}}};
  Attributes by_param;
  for (const ParamSpec& spec : result.params) {
    const auto renamed = attributes.find(spec.name);
    by_param[spec.name] = {renamed == attributes.end() ? spec.name : renamed->second, is_path(spec.type),
                           spec.type == ParamType::kDuration};
  }
  result.create = [shared_cls = std::make_shared<PyRef>(std::move(cls)), choice = result.by_device,
                   shared_attributes =
                       takes_all_keys ? nullptr : std::make_shared<const Attributes>(std::move(by_param))] {
    return choose_by_device(choice, make_python_backend(shared_cls, shared_attributes));
  };
  return {std::make_shared<BackendClass>(std::move(result))};
}

// A copy of the class with other defaults, for defaults that depend on the machine.
ClassHandle with_defaults(const ClassHandle& handle, const std::map<std::string, py::object>& defaults) {
  BackendClass copy = *handle.cls;
  for (ParamSpec& spec : copy.params) {
    const auto found = defaults.find(spec.name);
    if (found == defaults.end()) continue;
    spec.required = false;
    spec.fallback = default_of(spec, found->second, copy.name);
    spec.fallback_text = show_value(spec.type, spec.fallback);
  }
  return {std::make_shared<BackendClass>(std::move(copy))};
}

ClassHandle for_device(const ClassHandle& handle, const std::string& device) {
  BackendClass copy = *handle.cls;
  copy.device = device;
  return {std::make_shared<BackendClass>(std::move(copy))};
}

// A copy of the class that also has the parameters of `check`, a Python class, which is initialised before it.
ClassHandle with_check(const ClassHandle& handle, const ClassHandle& check) {
  if (!handle.cls->brackets.phases.empty())  // the check would build the items too
    throw Error(ErrorCode::kPlugin, handle.cls->name + " has brackets; only a class without brackets can have a check");
  BackendClass copy = *handle.cls;
  for (const ParamSpec& spec : check.cls->params) {
    const auto same_name = [&](const ParamSpec& other) { return other.name == spec.name; };
    if (std::none_of(copy.params.begin(), copy.params.end(), same_name)) copy.params.push_back(spec);
  }
  copy.create = [target = handle.cls, check = check.cls] {
    return std::make_shared<CheckedBackend>(check->create(), target->create());
  };
  return {std::make_shared<BackendClass>(std::move(copy))};
}

py::list params_of(const ClassHandle& handle) {
  py::list list;
  for (const ParamSpec& spec : handle.cls->params) {
    py::dict param;
    param["name"] = spec.name;
    param["aliases"] = spec.aliases;
    param["type"] = param_type_name(spec.type);
    param["required"] = spec.required;
    param["default"] = to_python(spec.fallback);
    param["choices"] = spec.choices;
    param["least"] = spec.least;
    param["most"] = spec.most;
    param["takes_auto"] = spec.takes_auto;
    param["help"] = spec.help;
    param["text"] = show_param(spec);
    list.append(param);
  }
  return list;
}

// Asks a Python `finder` for a class that the core does not have.
template <class... Arguments>
ClassPtr find_in_python(const PyRef& finder, const Arguments&... arguments) {
  const HoldGil gil;
  try {
    return py::reinterpret_borrow<py::object>(finder.get())(arguments...).template cast<ClassHandle>().cls;
  } catch (py::error_already_set& raised) {
    if (!raised.matches(PyExc_Exception)) throw from_signal_handler(raised);  // such as KeyboardInterrupt
    const py::object exception = raised.value();
    const bool is_missing = py::isinstance(exception, py::module_::import("hami._errors").attr("BackendNotFound"));
    const auto text_of_attribute = [&](const char* attribute) -> std::string {
      const py::object text = py::getattr(exception, attribute, py::none());
      return text.is_none() ? "" : std::string(py::str(text));
    };
    std::string headline = text_of_attribute("headline");
    if (headline.empty()) headline = from_python(raised).message();
    throw MissingBackend{is_missing ? ErrorCode::kBackendNotFound : ErrorCode::kPlugin, headline,
                         text_of_attribute("hint"), text_of_attribute("cause")};
  }
}

}  // namespace

void register_backend_classes(py::module_& module) {
  py::class_<ClassHandle>(module, "BackendClass", "A handle of a backend class: its name, parameters and traits.")
      .def_property_readonly("name", [](const ClassHandle& self) { return self.cls->name; })
      .def_property_readonly("owner", [](const ClassHandle& self) { return self.cls->owner; },
                             "The distribution that provides the class; empty if this process registered it.")
      .def_property_readonly("aliases", [](const ClassHandle& self) { return self.cls->aliases; })
      .def_property_readonly("doc", [](const ClassHandle& self) { return self.cls->doc; })
      .def_property_readonly("range", [](const ClassHandle& self) { return self.cls->range; },
                             "The batch sizes that the class declares, as text; empty if it declares none.")
      .def_property_readonly("params", params_of, "The declared parameters, each as a dict.")
      .def_property_readonly("brackets", [](const ClassHandle& self) { return show_brackets(self.cls->brackets); },
                             "The bracket items that the class takes, as text; empty if it takes none.")
      .def_property_readonly("thread",
                             [](const ClassHandle& self) {
    return self.cls->runs_in.empty() ? thread_mode_name(self.cls->traits.thread) : kProcess;
  })
      .def_property_readonly("non_blocking", [](const ClassHandle& self) { return self.cls->traits.non_blocking; })
      .def_property_readonly("lightweight", [](const ClassHandle& self) { return self.cls->traits.lightweight; })
      .def_property_readonly("device", [](const ClassHandle& self) { return self.cls->device; },
                             "The kind of device for which the class implements its name; empty: it is that backend.")
      .def("for_device", for_device, py::arg("device"), "Return a copy of the class for a kind of device.")
      .def("with_defaults", with_defaults, py::arg("defaults"),
           "Return a copy of the class with other parameter defaults.")
      .def("with_check", with_check, py::arg("check"),
           "Return a copy of the class that initialises a Python class first, and has the parameters of both.");

  module.def("python_class", python_class, py::arg("cls"), py::arg("name"), py::kw_only(), py::arg("owner"),
             py::arg("doc"), py::arg("range"), py::arg("params"), py::arg("attributes"), py::arg("thread"),
             py::arg("non_blocking"), py::arg("idempotent"), py::arg("lightweight"), py::arg("instances_on_device"),
             py::arg("by_device"), py::arg("outlines_items"), py::arg("child_count"), py::arg("takes_all_keys") = false,
             py::arg("is_instance") = false, "Return a handle of a backend class written in Python.");
  module.def("generated_class",
             [](const std::string& name, const std::string& text, std::string owner, const py::dict& defaults) {
    GeneratedBody body{name, text, {}};
    for (const auto& [key, value] : defaults) body.defaults.emplace_back(py::cast<std::string>(key), to_value(value));
    return ClassHandle{generated_class(std::move(body), std::move(owner))};
  }, py::arg("name"), py::arg("text"), py::kw_only(), py::arg("owner"), py::arg("defaults"),
             "Return a handle of a name that is replaced by an expression.");
  module.def("define", [](const ClassHandle& handle) { Registry::instance().define(handle.cls); }, py::arg("handle"),
             "Add a class to the registry, replacing a class of the same name.");
  module.def("defined", [] {
    std::vector<ClassHandle> handles;
    for (const ClassPtr& cls : Registry::instance().known()) handles.push_back({cls});
    return handles;
  }, "Return the classes in the registry.");
  module.def("is_defined", [](const std::string& name) { return Registry::instance().find_known(name) != nullptr; },
             py::arg("name"), "Return whether a class in the registry has this name or alias.");
  module.def("set_finder",
             [](py::object finder) {
    auto shared_finder = std::make_shared<PyRef>(std::move(finder));
    Registry::instance().set_finder([shared_finder](const std::string& name, const std::string& distribution,
                                                    const Registry::Providers& providers) {
      return find_in_python(*shared_finder, name, distribution, providers);
    });
  }, py::arg("finder"),
             "Set the function that finds classes outside the registry: finder(name, distribution, providers).");
  module.def("set_device_finder",
             [](py::object finder) {
    auto shared_finder = std::make_shared<PyRef>(std::move(finder));
    Registry::instance().set_device_finder([shared_finder](const std::string& name, const std::string& device) {
      return find_in_python(*shared_finder, name, device);
    });
  }, py::arg("finder"),
             "Set the function that finds the implementation of a name for a kind of device: finder(name, device).");
}

}  // namespace hami::bind
