// Times of nodes and histograms as plain Python data.
#include "histograms.hpp"

#include <map>
#include <string>

namespace hami::bind {
namespace {

constexpr double kNsPerMs = 1e6;

}  // namespace

py::tuple histogram(const Histogram& from, double unit) {
  py::list buckets;
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i)
    if (const std::uint64_t count = from.count(i))
      buckets.append(py::make_tuple(static_cast<double>(Histogram::lower_bound(i)) / unit,
                                    static_cast<double>(Histogram::lower_bound(i + 1) - 1) / unit, count));
  return py::make_tuple(static_cast<double>(from.sum()) / unit, buckets);
}

void add_times(const NodeTimes& times, double compute_ms, py::dict& values) {
  values["queue_ms"] = histogram(times.queue, kNsPerMs);
  values["batch_ms"] = histogram(times.batch, kNsPerMs);
  values["latency_ms"] = histogram(times.latency, kNsPerMs);
  values["batch_sizes"] = histogram(times.batch_items, 1);
  py::dict backends;
  std::map<std::string, int> seen;
  const bool is_only = times.backends.size() == 1;
  times.backends.for_each([&](const BackendTime& time) {
    const int number = ++seen[time.name];
    const std::string name = number == 1 ? time.name : time.name + " (" + std::to_string(number) + ")";
    backends[py::str(name)] = is_only ? compute_ms : static_cast<double>(time.nanoseconds) / kNsPerMs;
  });
  values["backend_ms"] = backends;
}

}  // namespace hami::bind
