// A pipe's configuration as the core takes it: nodes and their keys, already read from wherever they were written.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "value/value.hpp"

namespace hami {

struct PipeConfig {
  struct Section {
    std::string name;
    std::vector<std::pair<std::string, Value>> keys;  // a sub-table [node.X] is flattened to "X.key"
  };
  std::vector<Section> nodes;
  Section global;
  std::optional<std::string> entrypoint;
  std::optional<std::string> dag_entrypoint;
  std::map<std::string, std::string> providers;
  // A section and a key of it. The section of top-level keys is "".
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::string> where;  // "pipeline.toml:7", where that is known
  std::set<Key> referenced;          // used already: they stand in the values of other keys
  std::set<Key> unknown;             // given, but their values could not be made out, of which the user knows
};

}  // namespace hami
