// The room `request`. A request on its way, what it waits for, and how it ends.
#pragma once

#include "request/execution_frame.hpp"
#include "request/node_visits.hpp"
#include "request/outcome.hpp"
#include "request/request.hpp"
#include "request/request_chain.hpp"
#include "request/wait_graph.hpp"
