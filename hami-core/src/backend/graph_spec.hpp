// GraphSpec: how the nodes of a pipe are connected, as configured by `next`, `map`, `accept_skipped` and `or`.
#pragma once

#include <string>
#include <vector>

namespace hami {

struct MapEntry {
  std::string source;  // a node
  std::string from;    // a key of that node's result
  std::string to;      // the key it becomes
};

struct GraphNode {
  std::string name;
  std::vector<std::string> next;
  std::vector<MapEntry> map;  // empty: a copy of the result of its only predecessor
  bool is_or = false;
  bool accepts_skipped = false;  // runs with what its `map` delivers if a node before it was skipped
};

using GraphSpec = std::vector<GraphNode>;

}  // namespace hami
