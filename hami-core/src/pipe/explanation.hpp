// What a configuration comes to: every backend of every node, and where the value of each of its parameters is from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "value/value.hpp"

namespace hami {

struct ExplainedParam {
  enum class From { kExpression, kNode, kGlobal, kGenerated, kDefault };
  std::string name;
  Value value;
  std::string text;  // in its unit
  From from = From::kDefault;
  std::string key;  // of the node or of [global]
};

struct ExplainedBackend {
  std::string name;   // as it is written
  std::string cls;    // what that is an alias of, or the same
  std::string owner;  // the distribution
  std::size_t depth;  // how many brackets are around it
  std::vector<ExplainedParam> params;
};

struct Explanation {
  // The backends of one node's init expression, or of the entrypoint, in the order in which they are written.
  struct Part {
    std::string expression;
    std::string key;  // that the expression stands under; empty: it is the default
    std::vector<ExplainedBackend> backends;
  };
  std::vector<Part> nodes;  // in the order of the configuration
  Part entry;

  Part* part = nullptr;  // the one that is being planned
};

}  // namespace hami
