// Generated backends: names for expressions. HAMI_GENERATE_BACKEND(Z, "A[B,C[D]]", "k=v")
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

// The same from text such as "k=v, n=2", defined in the registry. Throws Error(kConfig).
bool generate_backend(const std::string& name, const std::string& text, const std::string& defaults);

#define HAMI_GENERATE_BACKEND(name, ...) \
  [[maybe_unused]] static const bool hami_generated_##name = ::hami::generate_backend(#name, __VA_ARGS__)

}  // namespace hami
