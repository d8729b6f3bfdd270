// Which instances the expressions of a pipe register, and which they call: a name that nobody registers is found while
// nothing is made yet.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "value/error.hpp"
#include "pipe/node_scope.hpp"
#include "backend/plan.hpp"

namespace hami {

// Where a text was found.
struct Source {
  std::string text;
  std::string where;
};

class InstanceNames {
 public:
  struct WaitLocation {
    Span span;
    std::shared_ptr<const Source> source;
  };

  void call(const std::string& name, const WaitLocation& place) { calls_.push_back({name, place}); }
  // What a backend registers and calls without naming it as an instance.
  void note(const Plan& plan, const NodeScope& node, const WaitLocation& place);
  // One error for each call that cannot come through.
  std::vector<Error> missing() const;

 private:
  struct Call {
    std::string name;
    WaitLocation place;
  };
  bool is_registered(const std::string& name) const;
  std::vector<std::string> examples() const;

  std::set<std::string> nodes_;                 // node.<name>
  std::map<std::string, std::int64_t> counts_;  // of <name>.<i>
  std::vector<Call> calls_;
};

}  // namespace hami
