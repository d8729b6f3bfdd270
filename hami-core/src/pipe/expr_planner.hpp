// ExprPlanner: plans one expression of one node: resolves names, checks brackets and parameters, plans children.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/api.hpp"
#include "pipe/names.hpp"
#include "pipe/planner.hpp"
#include "registry/api.hpp"

namespace hami {

// Limits of a whole pipe, where each use of a key counts: a few short keys that refer to each other must not exhaust memory or
// the stack.
inline constexpr std::size_t kMaxBackends = 100'000;
inline constexpr std::size_t kMaxTextOfPipe = std::size_t{16} << 20;
inline constexpr std::size_t kMaxNested = 1000;

// The state that all expressions of a pipe share while it is planned.
struct Planning {
  std::vector<Error> problems;
  std::set<std::string> causes;  // causes of missing names that were reported
  InstanceNames instances;
  std::int64_t copies = 1;  // of the expression that is being planned
  std::size_t last_binding = 0;
  std::size_t backends = 0;            // planned so far
  std::size_t text_bytes = 0;          // read so far
  std::size_t nested = 0;              // expressions in each other
  std::optional<Error> too_large;      // the exceeded limit; planning has stopped
  std::size_t depth = 0;               // of nested brackets
  std::size_t outlined = 0;            // containers around whose items another process builds
  Explanation* explanation = nullptr;  // null: not requested
};

class ExprPlanner final : public PlanContext {
 public:
  // `is_init`: an init expression, in which scheduling classes are allowed.
  ExprPlanner(Planning& planning, NodeScope& node, Source source, bool is_init, ExprPlanner* asked_by = nullptr)
      : planning_(planning),
        node_(node),
        source_(std::make_shared<const Source>(std::move(source))),
        is_init_(is_init),
        asked_by_(asked_by) {}

  Plan plan_text_of_source();

  std::string text_of(const std::string& key) override;
  bool has(const std::string& key) override;
  Plan plan_value(const std::string& key) override;
  Plan plan_expr(const Expr& expr) override;
  Plan plan_text(const std::string& text) override;
  Plan plan_generated(const GeneratedBody& body, const Expr& use) override;
  void skip_expr(const Expr& expr) override;
  void call_instance(Span span, const std::string& name) override;
  void problem(Span span, const std::string& headline, const std::string& hint) override;

 private:
  struct Bound {
    std::string name;
    std::size_t binding;
    Traits traits;
  };

  // Set while this plans the body of a generated backend.
  struct Generation {
    const GeneratedBody* body;
    std::vector<Arg> args;        // of its use
    std::set<std::string> asked;  // parameters that the body accepts
    const Expr* foreign;          // the part of the tree that comes from the using text, …
    const Expr* original;         // … and that part in the using text's own tree
  };

  // The argument for a parameter where an enclosing generated backend is used.
  struct Given {
    const Arg* arg = nullptr;
    ExprPlanner* asker = nullptr;  // of the text that contains the argument
  };

  Expr parse_source();
  bool within_limits(Span span);
  Plan plan_counted(const Expr& expr);
  Plan wrapped(Plan backend);
  std::unique_ptr<Plan> plan_otherwise(const BackendClass& wrapper);
  void report_otherwise_alone(const BackendClass& wrapper);
  Plan plan_body(const Expr& use);
  Given given(const std::string& name);
  const Arg* given(const ParamSpec& spec);
  const Value* generated_default(const std::string& name) const;
  const Value* generated_default(const ParamSpec& spec) const;
  Plan plan_existing(const Expr& expr);
  ClassPtr find_class(const Expr& expr);
  bool check_brackets(const Expr& expr, const BackendClass& cls);
  void check_when(const Item& item, const Phase& phase, const BackendClass& cls);
  void plan_items(const Expr& expr, const BackendClass& cls, Plan& plan);
  Plan plan_in_container(const Expr& expr, const std::string& container);
  void check_outlined(const Item& item, const Plan& plan);
  void plan_default_child(const Expr& use, const BackendClass& cls, Plan& plan);
  static bool absorb(std::vector<PlanItem>& before, PlanItem& item);
  void read_params(const Expr& expr, const BackendClass& cls, Plan& plan);
  void read_param(const Expr& expr, const BackendClass& cls, const ParamSpec& spec, const Arg* arg, bool args_good,
                  Plan& plan);
  void read_all_keys(const Expr& expr, Plan& plan);
  NodeScope::Found find_param(const ParamSpec& spec, const std::string& qualifier);
  void report_same_param(const NodeScope::Found& one, const NodeScope::Found& other);
  void explain(const ParamSpec& spec, const Value& value, ExplainedParam::From from, const std::string& key = "");
  const std::string& folder_of(const Arg& arg) const;
  bool read_args(const Expr& expr, const BackendClass& cls, std::vector<const Arg*>& by_spec);
  void add(ErrorCode code, Span span, const std::string& headline, const std::string& hint);

  Planning& planning_;
  NodeScope& node_;
  std::shared_ptr<const Source> source_;
  bool is_init_;
  ExprPlanner* asked_by_;
  Generation* generation_ = nullptr;
  std::string key_;  // the key whose value this text is, if it came through Reflect
  std::vector<Bound> scope_;
  const Params* parent_ = nullptr;  // of the backend whose default child is planned: they hold for the child
};

// "(accepts: model: path, device: str = "cpu")" or "(accepts no parameters)".
std::string show_accepted(const BackendClass& cls);

}  // namespace hami
