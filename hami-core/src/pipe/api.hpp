// The room `pipe`. From configuration to a running pipe.
#pragma once

#include "pipe/call.hpp"
#include "pipe/load_generator.hpp"
#include "pipe/pipe_state.hpp"
#include "pipe/planner.hpp"
#include "pipe/request_keys.hpp"
