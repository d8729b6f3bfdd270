// Times of nodes and histograms as plain Python data.
#pragma once

#include "gil.hpp"
#include "observe/node_times.hpp"

namespace hami::bind {

// (sum, [(smallest value, largest value, count), …]) of the buckets that are not empty, divided by `unit`.
py::tuple histogram(const Histogram& from, double unit);
// Adds the keys of hami.NodeStats for these times. `compute_ms`: of the node, the time of its only backend.
void add_times(const NodeTimes& times, double compute_ms, py::dict& values);

}  // namespace hami::bind
