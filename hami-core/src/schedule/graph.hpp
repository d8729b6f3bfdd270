// Graph: the static structure of a pipe with several nodes, and its checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/api.hpp"

namespace hami {

struct GraphProblem {
  std::string node;
  std::string key;  // "next", "map", "or", "accept_skipped"
  std::string headline;
  std::string hint;
};

// Finds all errors: unknown or repeated nodes, cycles, several predecessors without `map`, a `map` from a node that cannot have
// run, `or` together with `map` or without a predecessor, `accept_skipped` without `map`.
std::vector<GraphProblem> check_graph(const GraphSpec& spec);

// "b, c" -> {b, c}. "src[result:data],other[result:boxes]" -> entries; throws Error(kConfig) with the reason.
std::vector<std::string> parse_next(const std::string& text);
std::vector<MapEntry> parse_map(const std::string& text);

class Graph {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  // `spec` must have no problems.
  explicit Graph(const GraphSpec& spec);

  struct Node {
    std::string name;
    std::vector<std::size_t> next;
    std::vector<std::size_t> before;  // direct predecessors
    struct Source {
      std::size_t node;
      std::string from;
      std::string to;
    };
    std::vector<Source> map;
    bool is_or = false;
    bool accepts_skipped = false;
    bool is_source = false;  // a `map` names it: its result is kept
  };

  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  const std::vector<std::size_t>& roots() const noexcept { return roots_; }
  std::size_t find(std::string_view name) const noexcept;  // kNone if absent
  // The nodes that run when a request starts at `start`; empty, with the reason in `problem`, if one of them misses a source.
  std::vector<bool> reachable(std::size_t start, std::string* problem) const;

 private:
  std::vector<Node> nodes_;
  std::vector<std::size_t> roots_;
};

}  // namespace hami
