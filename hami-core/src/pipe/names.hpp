// The names that the expressions of a pipe use: keys of nodes, and instances.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/api.hpp"
#include "lang/api.hpp"
#include "pipe/planner.hpp"

namespace hami {

// NodeScope: the keys that the expressions of one node can use, and which of them were used.
// The keys of [global], shared by all nodes.
struct GlobalScope {
  explicit GlobalScope(const PipeConfig& pipe) : config(pipe) {
    for (const auto& [key, value] : pipe.global.keys) values[key] = &value;
  }
  const PipeConfig& config;
  std::map<std::string, const Value*> values;
  std::set<std::string> used;
  std::set<std::string> known;  // keys that some backend would use, for suggestions
  std::set<std::string> own;    // keys that are only valid in a node
  bool complete = true;         // of every node
};

class NodeScope {
 public:
  // `section` null: the entrypoint of several nodes, which sees [global] only.
  NodeScope(GlobalScope& global, const PipeConfig::Section* section) : global_(global), section_(section) {
    if (!section) return;
    for (const auto& [key, value] : section->keys) values_[key] = &value;
    node_name_ = Value(section->name);
  }

  struct Found {
    const Value* value = nullptr;
    std::string section;
    std::string key;
    bool unknown = false;  // it was given, but its value could not be determined
  };
  // The node's own value, else that of [global]. Counts as a use of both.
  Found find(const std::string& key);
  // Of the node alone, for "X.key".
  Found find_own(const std::string& key);

  // Every key, with `node_name`. Counts as a use of all.
  std::vector<Found> find_all();

  const std::string& name() const noexcept { return section_ ? section_->name : kNowhere; }
  const PipeConfig& config() const noexcept { return global_.config; }
  // `node "resnet", pipeline.toml:7`; parts that are not known are omitted.
  std::string where(const std::string& section, const std::string& key) const;
  // The folder of the file that contains the value; empty if there is none.
  std::string folder(const std::string& section, const std::string& key) const;
  const std::set<std::string>& used() const noexcept { return used_; }
  // Some of the node's backends are not known, so unused keys cannot be reported.
  void give_up() noexcept { complete_ = global_.complete = false; }
  bool complete() const noexcept { return complete_; }
  const std::set<std::string>& known() const noexcept { return known_; }

 private:
  static const std::string kNowhere;
  static const Value kUnknown;
  bool is_unknown(const std::string& section, const std::string& key) const;
  GlobalScope& global_;
  const PipeConfig::Section* section_;
  std::map<std::string, const Value*> values_;
  Value node_name_;
  std::set<std::string> used_;
  std::set<std::string> known_;
  bool complete_ = true;
};

// `key = value` as in a file, and the span of the key in it.
std::string show_setting(const std::string& key, const Value& value, Span& span);

// InstanceNames: the instances that a pipe's expressions register and call. A call of an unregistered name is found before
// anything is built.
// The text of an expression and its place.
struct Source {
  std::string text;
  std::string where;
  std::string folder = {};  // of the file that contains it; empty: none
};

class InstanceNames {
 public:
  struct SourcePlace {
    Span span;
    std::shared_ptr<const Source> source;
  };

  void call(const std::string& name, const SourcePlace& place) { calls_.push_back({name, place}); }
  // What a backend's class declares about this use of it.
  void note(const Plan& plan, const NodeScope& node, const SourcePlace& place);
  // One error for each call of a name that is not registered.
  std::vector<Error> missing() const;

 private:
  class Declarations;
  struct Call {
    std::string name;
    SourcePlace place;
  };
  bool is_registered(const std::string& name) const;
  std::vector<std::string> examples() const;

  std::set<std::string> nodes_;                 // node.<name>
  std::map<std::string, std::int64_t> counts_;  // of <name>.<i>
  std::vector<Call> calls_;
};

}  // namespace hami
