// PipeConfig: a pipe's configuration as the core accepts it: nodes and their keys, independent of their source.
#pragma once

#include <functional>
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
  std::map<Key, std::string> where;    // "pipeline.toml:7", if known
  std::map<Key, std::string> folders;  // of the file that contains the value: paths in it are relative to that
  std::set<Key> referenced;            // used already, in the values of other keys
  // What to write instead of a key that nothing uses; empty: unknown.
  std::function<std::string(const std::string& key)> advice;
  std::set<Key> unknown;  // given, but with values that could not be determined; that error was reported
  std::string file;       // that it was read from; empty: it was given as an expression or a dict
};

}  // namespace hami
