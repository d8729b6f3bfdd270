// check() and explain() of a configuration, and the format of messages with a caret.
#include "config.hpp"

#include <pybind11/stl.h>

#include "describe.hpp"
#include "errors.hpp"
#include "lang/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

[[gnu::cold]] PipeConfig::Section section(const std::string& name, const py::dict& keys) {
  PipeConfig::Section converted;
  converted.name = name;
  for (const auto& [key, value] : keys) converted.keys.emplace_back(py::cast<std::string>(key), to_value(value));
  return converted;
}

[[gnu::cold]] py::list check(const py::object& loaded) {
  const PipeConfig config = config_of(loaded);
  std::vector<Error> problems;
  {
    const ReleaseGil released;
    problems = plan_pipe(config).second;
  }
  py::list list;
  for (const Error& problem : problems) list.append(to_exception(problem));
  return list;
}

const char* source_name(ExplainedParam::From from) {
  switch (from) {
    case ExplainedParam::From::kExpression: return "expression";
    case ExplainedParam::From::kParent: return "parent";
    case ExplainedParam::From::kNode: return "node";
    case ExplainedParam::From::kGlobal: return "global";
    case ExplainedParam::From::kGenerated: return "generated";
    case ExplainedParam::From::kDefault: break;
  }
  return "default";
}

[[gnu::cold]] py::dict to_dict(const Explanation::Part& part) {
  py::list backends;
  for (const ExplainedBackend& backend : part.backends) {
    py::list params;
    for (const ExplainedParam& param : backend.params) {
      py::dict entry;
      entry["name"] = param.name;
      entry["value"] = to_python(param.value);
      entry["text"] = param.text;
      entry["from"] = source_name(param.from);
      entry["key"] = param.key;
      params.append(entry);
    }
    py::dict entry;
    entry["name"] = backend.name;
    entry["class"] = backend.cls;
    entry["owner"] = backend.owner;
    entry["depth"] = backend.depth;
    entry["params"] = params;
    entry["absorbed"] = backend.is_absorbed;
    backends.append(entry);
  }
  py::dict explained;
  explained["expression"] = part.expression;
  explained["key"] = part.key;
  explained["backends"] = backends;
  return explained;
}

[[gnu::cold]] py::dict explain(const py::object& loaded) {
  const PipeConfig config = config_of(loaded);
  Explanation explanation;
  {
    const ReleaseGil released;
    plan_pipe(config, &explanation);
  }
  py::dict nodes;
  for (std::size_t i = 0; i < explanation.nodes.size(); ++i)
    nodes[py::str(config.nodes[i].name)] = to_dict(explanation.nodes[i]);
  py::dict explained;
  explained["nodes"] = nodes;
  explained["entrypoint"] = to_dict(explanation.entry);
  return explained;
}

}  // namespace

[[gnu::cold]] PipeConfig config_of(const py::object& loaded) {
  PipeConfig config;
  if (const py::tuple files = loaded.attr("files"); !files.empty())
    config.file = files[files.size() - 1].cast<std::string>();
  for (const auto& [name, keys] : py::dict(loaded.attr("nodes")))
    config.nodes.push_back(section(py::cast<std::string>(name), py::reinterpret_borrow<py::dict>(keys)));
  config.global = section("global", py::dict(loaded.attr("globals")));
  config.entrypoint = loaded.attr("entrypoint").cast<std::optional<std::string>>();
  config.dag_entrypoint = loaded.attr("dag_entrypoint").cast<std::optional<std::string>>();
  config.providers = loaded.attr("providers").cast<std::map<std::string, std::string>>();
  config.where = loaded.attr("where").cast<std::map<PipeConfig::Key, std::string>>();
  config.folders = loaded.attr("folders").cast<std::map<PipeConfig::Key, std::string>>();
  for (const auto& key : loaded.attr("referenced")) config.referenced.insert(py::cast<PipeConfig::Key>(key));
  config.advice = [](const std::string& key) {
    const HoldGil gil;
    return py::module_::import("hami._plugins.lookup").attr("advice_on_key")(key).cast<std::string>();
  };
  for (const auto& key : loaded.attr("unknown")) config.unknown.insert(py::cast<PipeConfig::Key>(key));
  return config;
}

void register_config(py::module_& module) {
  module.def("check", check, py::arg("config"),
             "Return every problem of a configuration as an exception, without building the pipe.");
  module.def("describe", [](const py::object& loaded) { return description_of(loaded); }, py::arg("config"),
             "Return what Pipe.describe returns of a configuration, without building the pipe.");
  module.def("explain", explain, py::arg("config"),
             "Return the backends and parameter values of a configuration, and the source of each value.");
  module.def("read_duration", [](const std::string& text) -> std::optional<double> {
    const std::optional<double> milliseconds = read_number(text) ? std::nullopt : read_duration(text);
    return milliseconds ? std::optional(*milliseconds / 1e3) : std::nullopt;
  }, py::arg("text"), "Return a number with a unit, such as \"5ms\", in seconds; None for any other text.");
  module.def("message_with_caret",
             [](const std::string& headline, const std::string& text, std::uint32_t begin, std::uint32_t end,
                const std::string& where,
                const std::string& hint) { return message_with_caret(headline, text, {begin, end}, where, hint); },
             py::arg("headline"), py::arg("text"), py::arg("begin"), py::arg("end"), py::arg("where") = "",
             py::arg("hint") = "",
             "Format an error message that marks the characters from `begin` to `end` of `text`.");
}

}  // namespace hami::bind
