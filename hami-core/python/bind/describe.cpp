// describe: the explanation and the graph of a pipe as plain data.
#include "describe.hpp"

#include <pybind11/stl.h>

#include "config.hpp"
#include "telemetry/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// Anything but the kinds that JSON has becomes its repr.
py::object plain(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kStr: return to_python(value);
    case Kind::kList: {
      py::list list;
      for (std::size_t i = 0; i < value.as_list().size(); ++i) list.append(plain(value.as_list().at(i)));
      return std::move(list);
    }
    case Kind::kDict: {
      py::dict dict;
      for (const auto& [key, item] : value.as_dict().entries()) dict[py::str(key)] = plain(item);
      return std::move(dict);
    }
    default: return py::repr(to_python(value));
  }
}

// Durations are seconds in Python and milliseconds in the core.
py::object plain(const ExplainedParam& param) {
  const bool is_duration = param.type == ParamType::kDuration || param.type == ParamType::kMilliseconds;
  if (is_duration && !param.value.is_none()) return py::float_(param.value.as_float() / 1e3);
  return plain(param.value);
}

void add_params(const ExplainedBackend& backend, py::dict& params) {
  std::size_t position = 0;  // of a parameter without a name
  for (const ExplainedParam& param : backend.params) {
    const std::string name = param.name.empty() ? std::to_string(position++) : param.name;
    params[py::str(name)] = plain(param);
  }
}

using Backends = std::vector<ExplainedBackend>;

// The backends from `first` on that are in the brackets at `depth`, each with those in its own brackets.
[[gnu::cold]] py::list tree(const Backends& backends, std::size_t& first, std::size_t depth) {
  py::list list;
  while (first < backends.size() && backends[first].depth >= depth) {
    const ExplainedBackend& backend = backends[first++];
    py::dict params;
    add_params(backend, params);
    py::dict entry;
    entry["name"] = backend.name;
    entry["class"] = backend.cls;
    entry["distribution"] = backend.owner.empty() ? py::object(py::none()) : py::object(py::str(backend.owner));
    entry["params"] = params;
    entry["absorbed"] = backend.is_absorbed;
    entry["children"] = tree(backends, first, backend.depth + 1);
    list.append(entry);
  }
  return list;
}

py::dict entrypoint(const Explanation::Part& part) {
  std::size_t first = 0;
  py::dict described;
  described["expression"] = part.expression;
  described["backends"] = tree(part.backends, first, 0);
  return described;
}

// The backends of one instance, without those that register and schedule it; all backends if nothing makes instances.
py::list backends_of_instance(const Backends& backends) {
  std::size_t first = 0;
  while (first < backends.size() && !backends[first].makes_copies) ++first;
  if (first == backends.size()) return tree(backends, first = 0, 0);
  const std::size_t depth = backends[first++].depth;
  return tree(backends, first, depth + 1);
}

[[gnu::cold]] py::dict node(const Explanation::Part& part, const GraphNode& edges) {
  py::dict batching;
  for (const ExplainedBackend& backend : part.backends)
    if (backend.schedules) add_params(backend, batching);
  py::list map;
  for (const MapEntry& entry : edges.map) {
    py::dict mapped;
    mapped["node"] = entry.source;
    mapped["from"] = entry.from;
    mapped["to"] = entry.to;
    map.append(mapped);
  }
  py::dict described;
  described["expression"] = part.expression;
  described["backends"] = backends_of_instance(part.backends);
  described["batching"] = batching;
  described["next"] = py::cast(edges.next);
  described["map"] = map;
  described["or"] = edges.is_or;
  described["accept_skipped"] = edges.accepts_skipped;
  return described;
}

[[gnu::cold]] py::dict description(const Explanation& explanation, const GraphSpec& graph) {
  py::dict nodes;
  for (std::size_t i = 0; i < graph.size(); ++i) nodes[py::str(graph[i].name)] = node(explanation.nodes[i], graph[i]);
  py::dict described;
  described["entrypoint"] = entrypoint(explanation.entry);
  described["nodes"] = nodes;
  return described;
}

[[gnu::cold]] void write_json(JsonWriter& json, const py::handle& value) {
  if (value.is_none()) return json.null();
  if (py::isinstance<py::bool_>(value)) return json.value(value.cast<bool>());
  if (py::isinstance<py::float_>(value)) return json.value(value.cast<double>());
  if (py::isinstance<py::int_>(value)) return json.raw(py::str(value).cast<std::string>());
  if (py::isinstance<py::dict>(value))
    return json.object([&] {
      for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(value)) {
        json.key(py::str(key).cast<std::string>());
        write_json(json, item);
      }
    });
  if (py::isinstance<py::list>(value))
    return json.array([&] {
      for (const auto& item : py::reinterpret_borrow<py::list>(value)) write_json(json, item);
    });
  json.value(std::string_view(py::str(value).cast<std::string>()));
}

}  // namespace

std::string to_json(const py::dict& described) {
  JsonWriter json;
  write_json(json, described);
  return json.take();
}

py::dict description_of(const PipeState& pipe) { return description(pipe.explanation(), pipe.context().graph); }

py::dict description_of(const py::object& loaded) {
  const PipeConfig config = config_of(loaded);
  Explanation explanation;
  GraphSpec graph;
  {
    const ReleaseGil released;
    auto [plan, problems] = plan_pipe(config, &explanation);
    if (!problems.empty()) throw PlanProblems{std::move(problems)};
    graph = std::move(plan.graph);
  }
  return description(explanation, graph);
}

}  // namespace hami::bind
