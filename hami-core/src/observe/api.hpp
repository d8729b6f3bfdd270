// The room `observe`. What is counted and recorded while requests run. The room `telemetry` shows it to others.
#pragma once

#include "observe/counters.hpp"
#include "observe/histogram.hpp"
#include "observe/node_stats.hpp"
#include "observe/node_times.hpp"
#include "observe/statistics.hpp"
#include "observe/trace.hpp"
#include "observe/trace_ring.hpp"
