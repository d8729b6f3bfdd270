// The room `backend`. What everything in a pipeline is: how it is declared, planned, built and called, and what it shares.
#pragma once

#include "backend/backend.hpp"
#include "backend/init.hpp"
#include "backend/instances.hpp"
#include "backend/pipe_context.hpp"
#include "backend/plan.hpp"
#include "backend/thread_modes.hpp"
#include "lang/api.hpp"
