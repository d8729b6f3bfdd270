// A pipeline that has been checked and not yet been made: every name resolved, every parameter read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lang/tree.hpp"
#include "backend/backend_class.hpp"

namespace hami {

struct GeneratedBody;
struct PlanItem;

struct Plan {
  ClassPtr cls;                              // null: `binding` or `instance` says which existing backend it is
  Params params;
  std::vector<Arg> args;                     // of a class with free_args
  std::vector<std::vector<PlanItem>> phases;
  std::size_t binding = 0;                   // > 0: the name bound under this number by an enclosing IoC
  std::string instance;                      // the name of an instance of the pipe
  Traits traits;                             // its own and its children's together
  std::string label;                         // for messages: the name as it was written
};

struct PlanItem {
  std::vector<Arg> when;
  std::size_t binding = 0;     // > 0: the number under which this item is visible in later phases
  std::string text;            // of an instance or a key
  std::unique_ptr<Plan> plan;  // of a backend

  bool says(const char* word) const {
    for (const Arg& arg : when)
      if (arg.key.empty() && arg.value == word) return true;
    return false;
  }
};

// What a class that replaces itself may ask while its pipe is planned.
class PlanContext {
 public:
  virtual ~PlanContext() = default;
  // The text that a backend of this place would get for a parameter: what is said where a generated backend around it is
  // used goes before the node (or [global]), its defaults come after. Empty if there is none. Counts as a use of the key.
  virtual std::string text_of(const std::string& key) = 0;
  // Whether there is such a parameter; its value may be no text. Counts as a use of the key.
  virtual bool has(const std::string& key) = 0;
  // Plans the expression that is its value, which sees no names bound around the asking expression.
  virtual Plan plan_value(const std::string& key) = 0;
  // Plans a piece of the asking expression's own text; a text inside it; a bare name of the core.
  virtual Plan plan_expr(const Expr& expr) = 0;
  virtual Plan plan_text(const std::string& text) = 0;
  // Plans the body of a generated backend in the place of `use`, an expression that names it.
  virtual Plan plan_generated(const GeneratedBody& body, const Expr& use) = 0;
  // Counts the keys that a piece would use, without building it or complaining about it.
  virtual void skip_expr(const Expr& expr) = 0;
  // Notes that what is planned calls an instance of the pipe.
  virtual void call_instance(Span span, const std::string& name) = 0;
  // Notes a mistake at `span` of the asking expression's text and goes on.
  virtual void problem(Span span, const std::string& headline, const std::string& hint) = 0;
};

}  // namespace hami
