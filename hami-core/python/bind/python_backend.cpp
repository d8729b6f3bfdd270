// PythonBackend: init, forward and close of a Python object, with the global lock held for just that long.
#include "python_backend.hpp"

#include <pybind11/stl.h>

#include <limits>
#include <map>

#include "base/fork.hpp"
#include "lang/units.hpp"
#include "sync/worker.hpp"
#include "errors.hpp"
#include "registry/generated.hpp"
#include "backend/init.hpp"
#include "registry/registry.hpp"
#include "request_view.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// A child of a Python backend: what its `self.children` holds.
struct Child {
  BackendPtr backend;
};

// What of the object holds a parameter, and whether Python wants a pathlib.Path there.
struct Attribute {
  std::string name;
  bool is_path = false;
  bool is_duration = false;
};
using Attributes = std::map<std::string, Attribute>;  // by the parameter's name

class PythonBackend final : public Backend {
 public:
  PythonBackend(std::shared_ptr<PyRef> cls, std::shared_ptr<const Attributes> attributes)
      : cls_(std::move(cls)), attributes_(std::move(attributes)) {}
  ~PythonBackend() override {
    if (!object_) return;
    const HoldGil gil;
    try {
      const py::object close = py::getattr(object_.get(), "close", py::none());
      if (initialised_ && !close.is_none()) call_python(close);
    } catch (py::error_already_set& raised) {
      raised.discard_as_unraisable(py::reinterpret_borrow<py::object>(cls_->get()));
    }
    object_ = PyRef();
  }

  bool acquires_gil() const noexcept override { return true; }

 private:
  void init_(Init& init) override {
    const HoldGil gil;
    try {
      py::object object = call_python(cls_->get());
      for (const auto& [name, value] : init.params()) {
        const Attribute& attribute = attributes_->at(name);
        py::object given = attribute.is_duration && !value.is_none() ? py::float_(value.as_float() / 1e3) : to_python(value);
        if (attribute.is_path && !given.is_none()) given = py::module_::import("pathlib").attr("Path")(given);
        object.attr(attribute.name.c_str()) = given;
      }
      set_children(init, object);
      object_ = PyRef(object);
      if (py::hasattr(object, "init")) {
        call(object.attr("init"), py::cast(std::make_unique<DictView>(init.shared_options())));
      }
      initialised_ = true;
      read_range(object);
      forward_method_ = PyRef(object.attr("forward"));
    } catch (py::error_already_set& raised) {
      throw from_python(raised);
    }
  }

  void set_children(Init& init, py::object& object) {
    std::vector<BackendPtr> made;
    if (init.has_brackets()) {
      const ReleaseGil release;
      for (const PlanItem& item : init.items()) made.push_back(init.make(item));
    }
    py::tuple children(made.size());
    for (std::size_t i = 0; i < made.size(); ++i) children[i] = py::cast(Child{made[i]});
    object.attr("children") = children;
  }

  // `max` and `min` of the object: ints, or methods that give one after init.
  void read_range(const py::object& object) {
    const auto read = [&](const char* name) -> std::optional<std::size_t> {
      py::object value = py::getattr(object, name, py::none());
      if (PyCallable_Check(value.ptr())) value = call_python(value);
      if (value.is_none()) return std::nullopt;
      int overflow = 0;  // 1: more than any batch can hold
      const bool is_int = py::isinstance<py::int_>(value);
      const long long number = is_int ? PyLong_AsLongLongAndOverflow(value.ptr(), &overflow) : 0;
      if (overflow < 0 || (overflow == 0 && number < 1))
        throw Error(ErrorCode::kConfig, label() + "." + name + " must be an int of at least 1, got " + std::string(py::repr(value)));
      return static_cast<std::size_t>(overflow ? std::numeric_limits<long long>::max() : number);
    };
    if (const auto max = read("max")) range_of_.max = *max;
    if (const auto min = read("min")) range_of_.min = *min;
    if (range_of_.min > range_of_.max)
      throw Error(ErrorCode::kConfig, label() + ".min is " + std::to_string(range_of_.min) + ", above its max, " +
                                          std::to_string(range_of_.max));
  }

  void forward_(Batch batch) override {
    const HoldGil gil{HoldGil::ForBatch{}};
    try {
      const BatchViews views(batch);
      const py::object returned = call(forward_method_.get(), views.list());
      if (!returned.is_none()) check_returned(returned, batch);
    } catch (py::error_already_set& raised) {
      throw from_python(raised);
    }
    drain_dropped();
    add_backend_note(batch);
  }

  // Results that are returned instead of set. A number or a bool may be nobody's business.
  void check_returned(const py::object& returned, Batch batch) const {
    if (PyLong_Check(returned.ptr())) return;
    for (const Request* request : batch)
      if (!request->alive() || request->dict.contains(kResult)) return;
    throw Error(ErrorCode::kNoResult, label() + ".forward returned " + py::type::of(returned).attr("__name__").cast<std::string>() +
                                          " and left no `result`; it sets item[\"result\"] of each request, and returns nothing");
  }

  void forward_with_dep_(Batch batch, Backend& dependency) override {
    const HoldGil gil;
    if (!py::hasattr(object_.get(), "forward_with_dep")) throw Error(ErrorCode::kRequest, label() + " has no forward_with_dep");
    try {
      const BatchViews views(batch);
      // The dependency outlives the call, not the handle.
      Child child{BackendPtr(&dependency, [](Backend*) {})};
      const py::object handle = py::cast(child);
      call(object_.get().attr("forward_with_dep"), views.list(), handle);
      handle.cast<Child&>().backend = nullptr;
    } catch (py::error_already_set& raised) {
      throw from_python(raised);
    }
    add_backend_note(batch);
  }

  void inject_dependency_(const BackendPtr& dependency) override {
    const HoldGil gil;
    if (!py::hasattr(object_.get(), "inject_dependency"))
      throw Error(ErrorCode::kConfig,
                  label() + " takes no dependency; a class that does has a method inject_dependency(self, dependency)");
    try {
      call_python(object_.get().attr("inject_dependency"), py::cast(Child{dependency}));
    } catch (py::error_already_set& raised) {
      throw from_python(raised);
    }
  }

  Range range_() const override { return range_of_; }

  // Runs a method. A child that it forks on a thread of the core ends with it: who waits for the outcome is not there.
  template <class... Arguments>
  py::object call(py::handle method, const Arguments&... arguments) const {
    const auto is_child = [this] { return fork_generation() != made_in_ && Worker::on_some_worker(); };
    const auto end = [](const py::object& error) { py::module_::import("hami._runtime.forked").attr("end")(error); };
    try {
      py::object returned = call_python(method, arguments...);
      if (is_child()) end(py::none());
      return returned;
    } catch (py::error_already_set& raised) {
      if (is_child()) end(exception_in(raised));
      throw;
    }
  }

  const unsigned made_in_ = fork_generation();
  std::shared_ptr<PyRef> cls_;
  std::shared_ptr<const Attributes> attributes_;
  PyRef object_;
  PyRef forward_method_;
  bool initialised_ = false;  // else there is nothing for `close` to free
  Range range_of_;
};

// Python has durations in seconds, the core in milliseconds.
Value default_of(const ParamSpec& spec, py::handle given, const std::string& owner) {
  const bool is_number = py::isinstance<py::float_>(given) || (py::isinstance<py::int_>(given) && !py::isinstance<py::bool_>(given));
  if (spec.type == ParamType::kDuration && is_number)
    return coerce_param(spec, Value(show_duration(given.cast<double>() * 1e3)), owner);
  return coerce_param(spec, to_value(given), owner);
}

ParamSpec spec_of(const py::dict& given) {
  ParamSpec spec;
  spec.name = given["name"].cast<std::string>();
  spec.type = *param_type_of(given["type"].cast<std::string>());
  spec.required = given["required"].cast<bool>();
  spec.choices = given["choices"].cast<std::vector<std::string>>();
  if (!spec.required && !given["default"].is_none()) {
    spec.fallback = default_of(spec, given["default"], "its class");
  }
  spec.help = given["help"].cast<std::string>();
  return spec;
}

ClassHandle python_class(py::object cls, const std::string& name, const std::string& owner, const std::string& doc,
                         const std::string& range, const std::vector<py::dict>& params,
                         const std::map<std::string, std::string>& attributes, const std::string& threads, bool non_blocking,
                         bool idempotent, const std::pair<std::size_t, std::optional<std::size_t>>& children) {
  BackendClass made;
  made.name = name;
  made.owner = owner;
  made.doc = doc;
  made.range = range;
  for (const py::dict& param : params) made.params.push_back(spec_of(param));
  made.traits.thread = *thread_mode_of(threads);
  made.traits.non_blocking = non_blocking;
  made.traits.idempotent = idempotent;
  const std::size_t most = children.second.value_or(Phase::kMany);
  if (most > 0) made.brackets = {children.first > 0, {Phase{std::max<std::size_t>(1, children.first), most}}};
  auto held = std::make_shared<PyRef>(std::move(cls));
  Attributes held_by;
  for (const ParamSpec& spec : made.params) {
    const auto other = attributes.find(spec.name);
    held_by[spec.name] = {other == attributes.end() ? spec.name : other->second, spec.type == ParamType::kPath,
                              spec.type == ParamType::kDuration};
  }
  made.create = [held, names = std::make_shared<const Attributes>(std::move(held_by))] {
    return std::make_shared<PythonBackend>(held, names);
  };
  return {std::make_shared<BackendClass>(std::move(made))};
}

// The same class with other defaults: those that only the machine it runs on can tell.
ClassHandle with_defaults(const ClassHandle& handle, const std::map<std::string, py::object>& defaults) {
  BackendClass made = *handle.cls;
  for (ParamSpec& spec : made.params) {
    const auto found = defaults.find(spec.name);
    if (found == defaults.end()) continue;
    spec.required = false;
    spec.fallback = default_of(spec, found->second, made.name);
    spec.fallback_text = show_value(spec.type, spec.fallback);
  }
  return {std::make_shared<BackendClass>(std::move(made))};
}

py::list params_of(const ClassHandle& handle) {
  py::list list;
  for (const ParamSpec& spec : handle.cls->params) {
    py::dict param;
    param["name"] = spec.name;
    param["type"] = param_type_name(spec.type);
    param["required"] = spec.required;
    param["default"] = to_python(spec.fallback);
    param["choices"] = spec.choices;
    param["least"] = spec.least;
    param["most"] = spec.most;
    param["help"] = spec.help;
    param["text"] = show_param(spec);
    list.append(param);
  }
  return list;
}

// How the core asks Python for a name that it does not know.
ClassPtr ask_finder(const PyRef& finder, const std::string& name, const std::string& distribution,
                    const std::map<std::string, std::string>& providers) {
  const HoldGil gil;
  try {
    py::dict by_name;
    for (const auto& [key, value] : providers) by_name[py::str(key)] = value;
    return py::reinterpret_borrow<py::object>(finder.get())(name, distribution, by_name).cast<ClassHandle>().cls;
  } catch (py::error_already_set& raised) {
    const py::object exception = raised.value();
    const bool missing = py::isinstance(exception, py::module_::import("hami._errors").attr("BackendNotFound"));
    const auto part = [&](const char* attribute) -> std::string {
      const py::object text = py::getattr(exception, attribute, py::none());
      return text.is_none() ? "" : std::string(py::str(text));
    };
    std::string headline = part("headline");
    if (headline.empty()) headline = from_python(raised).message();
    throw MissingBackend{missing ? ErrorCode::kBackendNotFound : ErrorCode::kPlugin, headline, part("hint"),
                         part("cause")};
  }
}

}  // namespace

void register_python_backends(py::module_& module) {
  py::class_<ClassHandle>(module, "BackendClass", "What the registry knows of one backend class.")
      .def_property_readonly("name", [](const ClassHandle& self) { return self.cls->name; })
      .def_property_readonly("owner", [](const ClassHandle& self) { return self.cls->owner; })
      .def_property_readonly("aliases", [](const ClassHandle& self) { return self.cls->aliases; })
      .def_property_readonly("doc", [](const ClassHandle& self) { return self.cls->doc; })
      .def_property_readonly("range", [](const ClassHandle& self) { return self.cls->range; })
      .def_property_readonly("params", params_of)
      .def_property_readonly("brackets", [](const ClassHandle& self) { return show_brackets(self.cls->brackets); })
      .def_property_readonly("thread", [](const ClassHandle& self) { return thread_mode_name(self.cls->traits.thread); })
      .def_property_readonly("non_blocking", [](const ClassHandle& self) { return self.cls->traits.non_blocking; })
      .def("with_defaults", with_defaults, py::arg("defaults"));

  py::class_<Child>(module, "Child", "A backend inside the brackets of a Python backend.")
      .def("forward",
           [](const Child& self, const py::list& batch) {
             if (!self.backend) throw Error(ErrorCode::kRequest, "this backend was lent for one call, which is over");
             const Borrowed lent(batch);
             const ReleaseGil release;
             self.backend->forward(Batch(lent.requests()));
           })
      .def_property_readonly("min", [](const Child& self) { return self.backend->min(); })
      .def_property_readonly("max", [](const Child& self) -> std::optional<std::size_t> {
        const Range range = self.backend->range();
        return range.declared() ? std::optional(range.max) : std::nullopt;
      });

  module.def("python_class", python_class, py::arg("cls"), py::arg("name"), py::kw_only(), py::arg("owner"), py::arg("doc"),
             py::arg("range"), py::arg("params"), py::arg("attributes"), py::arg("thread"), py::arg("non_blocking"),
             py::arg("idempotent"), py::arg("children"));
  module.def("generated_class", [](const std::string& name, const std::string& text, std::string owner,
                                   const py::dict& defaults) {
    GeneratedBody body{name, text, {}};
    for (const auto& [key, value] : defaults) body.defaults.emplace_back(py::cast<std::string>(key), to_value(value));
    return ClassHandle{generated_class(std::move(body), std::move(owner))};
  }, py::arg("name"), py::arg("text"), py::kw_only(), py::arg("owner"), py::arg("defaults"));
  module.def("define", [](const ClassHandle& handle) { Registry::instance().define(handle.cls); });
  module.def("defined", [] {
    std::vector<ClassHandle> handles;
    for (const ClassPtr& cls : Registry::instance().known()) handles.push_back({cls});
    return handles;
  });
  // Aliases count too.
  module.def("is_defined", [](const std::string& name) { return Registry::instance().find_known(name) != nullptr; },
             py::arg("name"));
  module.def("set_finder", [](py::object finder) {
    auto held = std::make_shared<PyRef>(std::move(finder));
    Registry::instance().set_finder([held](const std::string& name, const std::string& distribution,
                                           const std::map<std::string, std::string>& providers) {
      return ask_finder(*held, name, distribution, providers);
    });
  });
}

}  // namespace hami::bind
