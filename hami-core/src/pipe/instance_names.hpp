// InstanceNames: the instances that a pipe's expressions register and call. A call of an unregistered name is found before
// anything is built.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/plan.hpp"
#include "pipe/node_scope.hpp"
#include "value/error.hpp"

namespace hami {

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
