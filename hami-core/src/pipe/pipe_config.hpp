// A pipe's configuration as the core takes it: nodes and their keys, already read from wherever they were written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/value.hpp"

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
  // (section, key) -> "pipeline.toml:7", where that is known. The section of top-level keys is "".
  std::map<std::pair<std::string, std::string>, std::string> where;
};

}  // namespace hami
