// How the nodes of a pipe hang together, as configured: `next`, `map`, `or`.
#pragma once

#include <string>
#include <vector>

namespace hami {

struct MapEntry {
  std::string source;  // a node
  std::string from;    // a key of that node's outcome
  std::string to;      // the key it becomes
};

struct GraphNode {
  std::string name;
  std::vector<std::string> next;
  std::vector<MapEntry> map;  // empty: a copy of its only predecessor's outcome
  bool is_or = false;
};

using GraphSpec = std::vector<GraphNode>;

}  // namespace hami
