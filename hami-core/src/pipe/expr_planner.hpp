// Plans one expression text of one node: names to classes, brackets and parameters checked, children planned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "value/error.hpp"
#include "pipe/explanation.hpp"
#include "pipe/instance_names.hpp"
#include "pipe/node_scope.hpp"
#include "registry/generated.hpp"
#include "backend/plan.hpp"

namespace hami {

// What a whole pipe may come to, each use of a key counted: a few short keys that refer to each other must take neither
// all memory nor all of the stack.
inline constexpr std::size_t kMaxBackends = 100'000;
inline constexpr std::size_t kMaxTextOfPipe = std::size_t{16} << 20;
inline constexpr std::size_t kMaxNested = 1000;

// What all expressions of a pipe share while it is planned.
struct Planning {
  std::vector<Error> problems;
  std::set<std::string> causes;    // why names could not be found, of those that were told
  InstanceNames instances;
  std::int64_t copies = 1;         // that are made of what is being planned
  std::size_t last_binding = 0;
  std::size_t backends = 0;        // planned so far
  std::size_t text_bytes = 0;      // read so far
  std::size_t nested = 0;          // expressions being planned, each for the one before
  std::optional<Error> too_large;  // the limit that was passed; nothing more is planned
  std::size_t depth = 0;                // of brackets around what is being planned
  Explanation* explanation = nullptr;   // null: nobody asks for one
};

class ExprPlanner final : public PlanContext {
 public:
  // `is_init`: scheduling names may stand in it.
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
    std::vector<Arg> args;        // of the use
    std::set<std::string> asked;  // parameters that the body would take
    const Expr* foreign;          // the piece of the tree that stands in the text of who asks, …
    const Expr* original;         // … as it stands there
  };

  // What is said for a parameter where a generated backend around is used.
  struct Given {
    const Arg* arg = nullptr;
    ExprPlanner* asker = nullptr;  // of the text in which it is said
  };

  Expr parse_source();
  bool within_limits(Span span);
  Plan plan_counted(const Expr& expr);
  Plan wrapped(Plan backend);
  Plan plan_body(const Expr& use);
  Given given(const std::string& name);
  const Value* generated_default(const std::string& name) const;
  Plan plan_existing(const Expr& expr);
  ClassPtr find_class(const Expr& expr);
  bool check_brackets(const Expr& expr, const BackendClass& cls);
  void check_when(const Item& item, const Phase& phase, const BackendClass& cls);
  void plan_items(const Expr& expr, const BackendClass& cls, Plan& plan);
  void read_params(const Expr& expr, const BackendClass& cls, Plan& plan);
  void read_param(const Expr& expr, const BackendClass& cls, const ParamSpec& spec, const Arg* arg, bool args_good, Plan& plan);
  void explain(const ParamSpec& spec, const Value& value, ExplainedParam::From from, const std::string& key = "");
  bool read_args(const Expr& expr, const BackendClass& cls, std::vector<const Arg*>& by_spec);
  void add(ErrorCode code, Span span, const std::string& headline, const std::string& hint);

  Planning& planning_;
  NodeScope& node_;
  std::shared_ptr<const Source> source_;
  bool is_init_;
  ExprPlanner* asked_by_;
  Generation* generation_ = nullptr;
  std::string key_;  // the key under which this text stood, if it came through Reflect
  std::vector<Bound> scope_;
};

// "(accepts: model: path, device: str = "cpu")", or that it takes none.
std::string show_accepted(const BackendClass& cls);

}  // namespace hami
