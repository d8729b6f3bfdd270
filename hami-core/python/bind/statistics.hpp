// The statistics of a pipe as plain Python data.
#pragma once

#include "gil.hpp"
#include "observe/api.hpp"
#include "pipe/api.hpp"

namespace hami::bind {

// (sum, [(smallest value, largest value, count), …]) of the buckets that are not empty, divided by `unit`.
py::tuple histogram(const Histogram& from, double unit);
// The statistics of each node, by name: the keys of hami.observe.NodeStats, and the counters of its backends.
py::dict stats_of(const PipeState& pipe);
// What the backends of each node say about it, by name.
py::dict remarks_of(const PipeState& pipe);

}  // namespace hami::bind
