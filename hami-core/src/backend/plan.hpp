// Plan: a checked expression before it is built: every name is resolved, every parameter is read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend_class.hpp"
#include "lang/tree.hpp"

namespace hami {

struct GeneratedBody;
struct PlanItem;

struct Plan {
  ClassPtr cls;  // null: `binding` or `instance` refers to an existing backend
  Params params;
  std::vector<Arg> args;  // of a class with free_args
  std::vector<std::vector<PlanItem>> phases;
  std::vector<Plan> absorbed;  // backends whose work this one does too, in their order
  std::size_t binding = 0;     // > 0: the number of a backend that an enclosing IoC binds
  std::string instance;        // the name of a registered instance
  Traits traits;               // its own combined with those of its children
  std::string label;           // the name as written, for messages; with the names of those that it absorbed
};

struct PlanItem {
  std::vector<Arg> when;
  std::size_t binding = 0;     // > 0: the number by which later phases refer to this item
  std::string text;            // of an instance or a key
  std::unique_ptr<Plan> plan;  // of a backend

  bool says(const char* word) const {
    for (const Arg& arg : when)
      if (arg.key.empty() && arg.value == word) return true;
    return false;
  }
};

// PlanContext: what a class that expands to another expression (Reflect) can ask while its pipe is planned.
class PlanContext {
 public:
  virtual ~PlanContext() = default;
  // The value of a parameter as text, by the scopes of reference/expressions.md: the arguments of an enclosing generated
  // backend, the node, [global], the defaults of the generated backend. Empty if there is none. Counts as a use of the key.
  virtual std::string text_of(const std::string& key) = 0;
  // Whether the parameter has a value of any type. Counts as a use of the key.
  virtual bool has(const std::string& key) = 0;
  // Plans the expression that is its value; names that are bound around the expanding expression are not visible in it.
  virtual Plan plan_value(const std::string& key) = 0;
  // Plan a part of the expanding expression; a text within it.
  virtual Plan plan_expr(const Expr& expr) = 0;
  virtual Plan plan_text(const std::string& text) = 0;
  // Plans the body of a generated backend in the place of `use`, an expression that names it.
  virtual Plan plan_generated(const GeneratedBody& body, const Expr& use) = 0;
  // Counts the keys that a part would use, without planning it or reporting its errors.
  virtual void skip_expr(const Expr& expr) = 0;
  // Records that the plan calls an instance.
  virtual void call_instance(Span span, const std::string& name) = 0;
  // Reports an error at `span` of the expanding expression and continues.
  virtual void problem(Span span, const std::string& headline, const std::string& hint) = 0;
};

}  // namespace hami
