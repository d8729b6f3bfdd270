// Generated backends: names for expressions, which hami.generate registers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/backend_class.hpp"
#include "lang/tree.hpp"

namespace hami {

struct GeneratedBody {
  std::string name;
  std::string text;                                     // the expression
  std::vector<std::pair<std::string, Value>> defaults;  // of parameters that the backends in the body declare
};

// A class that expands to its body when a pipe is planned. The items in its brackets go to the backend that is found by
// following the last item of the last phase of each bracket. Throws SyntaxError if `text` is not an expression.
ClassPtr generated_class(GeneratedBody body, std::string owner = "");

}  // namespace hami
