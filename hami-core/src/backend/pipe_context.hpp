// What the backends of one pipe can reach: each other by name, shared resources, the graph, and the pipe's shutdown.
#pragma once

#include <string>

#include "backend/graph_spec.hpp"
#include "backend/instance_table.hpp"
#include "backend/pipe_resources.hpp"
#include "backend/pipe_shutdown.hpp"

namespace hami {

// Members are destroyed from the last to the first: instances may use resources until their end.
struct PipeContext {
  std::string name;  // of the pipe, for messages; set before the first backend is built
  PipeShutdown shutdown;
  PipeResources resources;
  InstanceTable instances;
  GraphSpec graph;  // how the nodes are connected; set before the first backend is built
};

}  // namespace hami
