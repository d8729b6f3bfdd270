// Times of nodes and histograms as plain Python data.
#pragma once

#include "gil.hpp"
#include "observe/api.hpp"

namespace hami::bind {

// (sum, [(smallest value, largest value, count), …]) of the buckets that are not empty, divided by `unit`.
py::tuple histogram(const Histogram& from, double unit);
// Adds the keys of hami.NodeStats for these times of a node.
void add_times(const NodeTimes& times, const NodeStats& node, py::dict& values);

}  // namespace hami::bind
