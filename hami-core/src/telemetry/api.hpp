// The room `telemetry`. What the process shows to others: the status of its pipes, and the file of a trace.
#pragma once

#include "telemetry/json_writer.hpp"
#include "telemetry/status.hpp"
#include "telemetry/trace_recorder.hpp"
