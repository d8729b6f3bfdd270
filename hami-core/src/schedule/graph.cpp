// Graph: parsing, checks and traversal.
#include "schedule/graph.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "lang/api.hpp"

namespace hami {
namespace {

std::string trimmed(std::string_view text) { return std::string(trim(text)); }

// Splits at commas outside of [ ].
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string& part : parts) part = trimmed(part);
  return parts;
}

class Positions {
 public:
  explicit Positions(const GraphSpec& spec) {
    for (std::size_t i = 0; i < spec.size(); ++i) positions_.emplace(spec[i].name, i);
  }
  std::size_t of(const std::string& name) const {
    const auto found = positions_.find(name);
    return found == positions_.end() ? Graph::kNone : found->second;
  }

 private:
  std::unordered_map<std::string, std::size_t> positions_;
};

std::string unknown_node(const GraphSpec& spec, const std::string& name, bool suggest) {
  std::vector<std::string> names;
  if (suggest)
    for (const GraphNode& node : spec) names.push_back(node.name);
  return "node \"" + name + "\" does not exist" + did_you_mean(near_names(name, names));
}

using Before = std::vector<std::vector<std::size_t>>;  // the direct predecessors of each node

// All ancestors of a node.
std::vector<bool> ancestors_of(const Before& before, std::size_t node) {
  std::vector<bool> found(before.size());
  std::vector<std::size_t> open = before[node];
  while (!open.empty()) {
    const std::size_t next = open.back();
    open.pop_back();
    if (found[next]) continue;
    found[next] = true;
    open.insert(open.end(), before[next].begin(), before[next].end());
  }
  return found;
}

// The first node of a cycle, or kNone. Removes nodes without predecessors until none is left (Kahn's algorithm).
std::size_t find_cycle(const Before& before) {
  std::vector<std::vector<std::size_t>> after(before.size());
  std::vector<std::size_t> waits(before.size());
  std::vector<std::size_t> free;
  for (std::size_t node = 0; node < before.size(); ++node) {
    for (std::size_t source : before[node]) after[source].push_back(node);
    waits[node] = before[node].size();
    if (waits[node] == 0) free.push_back(node);
  }
  while (!free.empty()) {
    const std::size_t node = free.back();
    free.pop_back();
    for (std::size_t next : after[node])
      if (--waits[next] == 0) free.push_back(next);
  }
  for (std::size_t node = 0; node < before.size(); ++node)
    if (waits[node] > 0 && ancestors_of(before, node)[node]) return node;
  return Graph::kNone;
}

}  // namespace

std::vector<std::string> parse_next(const std::string& text) {
  std::vector<std::string> names = split(text);
  for (const std::string& name : names)
    if (name.empty()) throw Error(ErrorCode::kConfig, "next is \"" + text + "\"; expected node names between commas");
  return names;
}

std::vector<MapEntry> parse_map(const std::string& text) {
  std::vector<MapEntry> entries;
  const auto wrong = [&]() -> Error {
    return Error(ErrorCode::kConfig,
                 "map is \"" + text + "\"; expected node[key:key, …], for example det[result:data]");
  };
  for (const std::string& part : split(text)) {
    const auto open = part.find('[');
    if (open == std::string::npos || part.back() != ']') throw wrong();
    const std::string source = trimmed(part.substr(0, open));
    for (const std::string& pair : split(part.substr(open + 1, part.size() - open - 2))) {
      const auto colon = pair.find(':');
      if (colon == std::string::npos || source.empty()) throw wrong();
      entries.push_back({source, trimmed(pair.substr(0, colon)), trimmed(pair.substr(colon + 1))});
      if (entries.back().from.empty() || entries.back().to.empty()) throw wrong();
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (entries[i].to == entries[j].to)
        throw Error(ErrorCode::kConfig, "map is \"" + text + "\"; the key \"" + entries[i].to + "\" is set twice");
  return entries;
}

std::vector<GraphProblem> check_graph(const GraphSpec& spec) {
  std::vector<GraphProblem> problems;
  const Positions positions(spec);
  std::vector<std::vector<std::size_t>> before(spec.size());
  bool complete = true;  // every `next` names nodes; if not, errors that only follow from a missing edge are left out
  for (std::size_t i = 0; i < spec.size(); ++i) {
    std::set<std::string> seen;
    for (const std::string& name : spec[i].next) {
      const std::size_t next = positions.of(name);
      if (next == Graph::kNone) {
        problems.push_back({spec[i].name, "next", unknown_node(spec, name, problems.size() < kMaxSuggestions), ""});
        complete = false;
      } else if (!seen.insert(name).second) {
        problems.push_back({spec[i].name, "next", "node \"" + name + "\" is listed twice in `next`", ""});
      } else {
        before[next].push_back(i);
      }
    }
  }
  const std::size_t cycle = find_cycle(before);
  if (cycle != Graph::kNone)
    problems.push_back({spec[cycle].name, "next", "node \"" + spec[cycle].name + "\" is its own successor",
                        "the nodes of a pipe must not form a cycle"});
  for (std::size_t i = 0; i < spec.size(); ++i) {
    const GraphNode& node = spec[i];
    if (before[i].size() > 1 && node.map.empty())
      problems.push_back(
          {node.name, "map",
           "node \"" + node.name + "\" has " + std::to_string(before[i].size()) + " predecessors and no map",
           "say where each key comes from: map = \"" + spec[before[i][0]].name + "[result:data], …\""});
    if (node.is_or && !node.map.empty())
      problems.push_back({node.name, "or", "node \"" + node.name + "\" has both or and map", "keep one of them"});
    if (complete && node.is_or && before[i].empty())
      problems.push_back({node.name, "or", "node \"" + node.name + "\" has or = true and no predecessor",
                          "name it in another node's next"});
    if (node.accepts_skipped && node.map.empty())
      problems.push_back({node.name, "accept_skipped",
                          "node \"" + node.name + "\" has accept_skipped = true and no map",
                          "only a node with a map can run if a node before it was skipped"});
    const std::vector<bool> earlier = node.map.empty() ? std::vector<bool>() : ancestors_of(before, i);
    for (const MapEntry& entry : node.map) {
      const std::size_t source = positions.of(entry.source);
      if (source == Graph::kNone)
        problems.push_back({node.name, "map", unknown_node(spec, entry.source, problems.size() < kMaxSuggestions), ""});
      else if (complete && cycle == Graph::kNone && !earlier[source])
        problems.push_back({node.name, "map",
                            "node \"" + entry.source + "\" has not run when \"" + node.name + "\" starts",
                            "map may name only nodes that come before it"});
    }
  }
  return problems;
}

Graph::Graph(const GraphSpec& spec) : nodes_(spec.size()) {
  const Positions positions(spec);
  for (std::size_t i = 0; i < spec.size(); ++i) {
    nodes_[i].name = spec[i].name;
    nodes_[i].is_or = spec[i].is_or;
    nodes_[i].accepts_skipped = spec[i].accepts_skipped;
    for (const std::string& name : spec[i].next) {
      const std::size_t next = positions.of(name);
      nodes_[i].next.push_back(next);
      nodes_[next].before.push_back(i);
    }
    for (const MapEntry& entry : spec[i].map) {
      const std::size_t source = positions.of(entry.source);
      nodes_[i].map.push_back({source, entry.from, entry.to});
      nodes_[source].is_source = true;
    }
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].before.empty()) roots_.push_back(i);
}

std::size_t Graph::find(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].name == name) return i;
  return kNone;
}

std::vector<bool> Graph::reachable(std::size_t start, std::string* problem) const {
  std::vector<bool> seen(nodes_.size());
  std::vector<std::size_t> open{start};
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    open.insert(open.end(), nodes_[node].next.begin(), nodes_[node].next.end());
  }
  const auto lacks = [&](std::size_t node, std::size_t source) {
    if (seen[source]) return false;
    *problem = "a request that starts at node \"" + nodes_[start].name + "\" never reaches node \"" +
               nodes_[source].name + "\", which node \"" + nodes_[node].name + "\" needs";
    return true;
  };
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (!seen[node] || node == start) continue;
    for (std::size_t source : nodes_[node].before)
      if (lacks(node, source)) return {};
    for (const Node::Source& source : nodes_[node].map)
      if (lacks(node, source.node)) return {};
  }
  return seen;
}

}  // namespace hami
