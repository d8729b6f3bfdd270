// Times of nodes and histograms as plain Python data.
#include "histograms.hpp"

#include <string>

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

}  // namespace

void add_times(const NodeTimes& times, const NodeStats& node, py::dict& values) {
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

}  // namespace hami::bind
