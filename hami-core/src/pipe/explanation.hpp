// Explanation: every backend of every node of a configuration, and the source of each parameter's value.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lang/params.hpp"
#include "value/value.hpp"

namespace hami {

struct ExplainedParam {
  enum class From { kExpression, kParent, kNode, kGlobal, kGenerated, kDefault };
  std::string name;
  Value value;
  std::string text;  // in its unit
  From from = From::kDefault;
  std::string key;  // of the node or of [global]
  ParamType type = ParamType::kStr;
};

struct ExplainedBackend {
  std::string name;   // as written
  std::string cls;    // the class: differs from `name` for an alias
  std::string owner;  // the distribution
  std::size_t depth;  // of nested brackets
  std::vector<ExplainedParam> params;
  bool schedules = false;  // as BackendClass
  bool makes_copies = false;
  bool is_absorbed = false;  // the backend before it, in the same brackets, does its work
};

struct Explanation {
  // The backends of one node's init expression, or of the entrypoint, in written order.
  struct Part {
    std::string expression;
    std::string key;  // the key of the expression; empty: it is the default
    std::vector<ExplainedBackend> backends;

    // What a scheduling parameter without a number stands for.
    void settle(const std::string& name, const Value& value) {
      for (ExplainedBackend& backend : backends)
        for (ExplainedParam& param : backend.params)
          if (backend.schedules && param.name == name && param.value.kind() != Kind::kInt) {
            param.value = value;
            param.text = show_value(param.type, value);
          }
    }
  };
  std::vector<Part> nodes;  // in the order of the configuration
  Part entry;

  Part* part = nullptr;  // the part that is being planned
};

}  // namespace hami
