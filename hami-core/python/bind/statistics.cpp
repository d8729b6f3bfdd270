// The statistics of a pipe as plain Python data.
#include "statistics.hpp"

#include <pybind11/stl.h>

#include <string>

#include "time.hpp"

namespace hami::bind {

py::tuple histogram(const Histogram& from, double unit) {
  py::list buckets;
  for_each_bucket(from, unit, [&](double lower, double upper, std::uint64_t count) {
    buckets.append(py::make_tuple(lower, upper, count));
  });
  return py::make_tuple(static_cast<double>(from.sum()) / unit, buckets);
}

namespace {

template <class Times>
void add_histograms(const Times& times, py::dict values) {
  for_each_histogram(
      times, [&](const char* name, const Histogram& from, double unit) { values[name] = histogram(from, unit); });
}

[[gnu::cold]] void add_times(const NodeTimes& times, const NodeStats& node, py::dict& values) {
  if (values.contains("lanes"))  // read before the node, which contains them
    for (const LaneName lane : {kUrgentLane, kHighLane})
      add_histograms(times.lanes[lane], values["lanes"][kLaneNames[lane]]);
  add_histograms(times, values);
  py::dict backends;
  for_each_backend(times, node, [&](const std::string& name, double milliseconds, const BackendTime&) {
    backends[py::str(name)] = milliseconds;
  });
  values["backend_ms"] = backends;
}

[[gnu::cold]] py::dict values_of(const NodeStats& node) {
  py::dict values;
  for_each_statistic(node, [&](const char* key, auto value) { values[key] = value; });
  if (uses_lanes(node)) {
    py::dict lanes;
    for (const LaneName lane : {kUrgentLane, kHighLane}) {
      py::dict counts;
      for_each_count(node.lanes[lane], [&](const char* key, std::uint64_t count) { counts[key] = count; });
      lanes[kLaneNames[lane]] = counts;
    }
    values["lanes"] = lanes;
  }
  py::dict policy;
  for_each_decision(node, now(), [&](const char* key, auto value) { policy[key] = value; });
  values["policy"] = policy;
  return values;
}

}  // namespace

[[gnu::cold]] py::dict stats_of(const PipeState& pipe) {
  py::dict all;
  const double uptime = seconds_since(pipe.opened_at());
  for (const auto& [name, node] : pipe.stats()) {
    py::dict values = values_of(node);
    values["uptime_s"] = uptime;
    all[py::str(name)] = values;
  }
  for (const auto& [name, times] : pipe.times()) {
    const auto node = pipe.stats().find(name);
    if (node == pipe.stats().end()) continue;
    py::dict values = all[py::str(name)];
    add_times(times, node->second, values);
  }
  for (const auto& [name, counters] : pipe.counters())
    if (const auto counts = counters.all(); !counts.empty()) {
      const py::str node(name);
      if (!all.contains(node)) all[node] = py::dict();
      all[node]["counters"] = counts;
    }
  return all;
}

[[gnu::cold]] py::dict remarks_of(const PipeState& pipe) {
  py::dict all;
  for (const auto& [name, remarks] : pipe.remarks())
    if (const auto texts = remarks.all(); !texts.empty()) all[py::str(name)] = py::cast(texts);
  return all;
}

}  // namespace hami::bind
