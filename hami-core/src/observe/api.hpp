// The room `observe`: counts and records of running requests. The room `telemetry` shows them to others.
#pragma once

#include "observe/counters.hpp"
#include "observe/histogram.hpp"
#include "observe/node_stats.hpp"
#include "observe/node_times.hpp"
#include "observe/statistics.hpp"
#include "observe/trace.hpp"
#include "observe/trace_ring.hpp"
