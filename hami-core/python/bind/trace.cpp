// Starts and stops the timeline, and adds slices of Python code to it.
#include "trace.hpp"

#include <pybind11/stl.h>

#include "core_objects.hpp"
#include "errors.hpp"
#include "gil.hpp"
#include "request/api.hpp"
#include "telemetry/api.hpp"
#include "time.hpp"

namespace hami::bind {
namespace {

void start_trace(const std::string& path, const py::object& last, const py::object& slow) {
  trace::Options options;
  options.path = path;
  options.last = last.is_none() ? 0 : from_seconds(last);
  options.slow = from_seconds(slow);
  const ReleaseGil released;
  trace::start(options);
}

py::dict stop_trace() {
  trace::Summary summary;
  {
    const ReleaseGil released;
    summary = trace::stop();
  }
  py::dict values;
  values["events"] = summary.events;
  values["lost"] = summary.lost;
  values["written"] = summary.written;
  values["error"] = summary.error;
  return values;
}

trace::Event of_timer(const std::string& name) {
  trace::Event event;
  event.category = trace::Category::kTimer;
  event.name = trace::intern(name);
  return event;
}

std::uint32_t begin_slice(const std::string& name) {
  if (!trace::active()) return 0;
  trace::Event event = of_timer(name);
  event.time = now();
  return trace::begin_slice(event);
}

void add_slice(const std::string& name, Nanoseconds began, Nanoseconds ended) {
  if (!trace::active()) return;
  trace::Event event = of_timer(name);
  event.kind = trace::Event::kSlice;
  event.time = began;
  event.until = ended;
  trace::record(event);
}

// For each visit: the node, when the request arrived, when its batch started (None: it did not), when it left (None: it is
// still there), and whether it failed there.
py::list visits_in(const OpaqueObject& given) {
  const auto* const visits = dynamic_cast<const NodeVisits*>(&given);
  if (!visits) throw Error(ErrorCode::kDataType, std::string("expected hami.visits, got ") + given.type_key());
  const auto moment = [](Nanoseconds time) {
    return time == kNever ? py::object(py::none()) : py::object(py::int_(time));
  };
  py::list all;
  for (const NodeVisits::Visit& visit : visits->all())
    all.append(py::make_tuple(visit.node, visit.arrived, moment(visit.started), moment(visit.ended), visit.failed));
  return all;
}

}  // namespace

void register_trace(py::module_& module) {
  module.def("trace_start", start_trace, py::arg("path"), py::arg("last") = py::none(), py::arg("slow") = py::none(),
             "Begin to record the timeline of the process.");
  module.def("trace_stop", stop_trace, "End the trace and return what was recorded.");
  module.def("trace_active", trace::active, "Return whether a trace is recorded.");
  module.def("trace_begin", begin_slice, py::arg("name"),
             "Begin a slice of this thread, and return the token for trace_end; 0 without a trace.");
  module.def("trace_end", trace::end_slice, py::arg("token"), "End the innermost slice of this thread.");
  module.def("trace_slice", add_slice, py::arg("name"), py::arg("began_ns"), py::arg("ended_ns"),
             "Add a slice on a track of its own; the moments are those of time.monotonic_ns().");
  module.def("record_visits", [] { return Ref<OpaqueObject>(NodeVisits::recorded().get()); },
             "Return a value for the key hami.visits of one request, which records at which nodes the request is.");
  module.def("visits_in", visits_in, py::arg("recorded"),
             "Return the visits as tuples: node, arrived, started, ended, failed; moments as of time.monotonic_ns().");
}

}  // namespace hami::bind
