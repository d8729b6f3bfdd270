// ExprPlanner: replaces a generated backend by its body.

#include "lang/api.hpp"
#include "pipe/expr_planner.hpp"

namespace hami {
namespace {

// Inserts the bracket item of a generated backend into its body (see generated.hpp); returns the inserted copy.
const Expr* attach(Expr& body, const Item& dependency) {
  Expr* target = &body;
  while (!target->phases.empty() && !target->phases.back().back().is_setting)
    target = target->phases.back().back().expr.get();
  if (target->phases.empty()) target->phases.emplace_back();
  std::vector<Item>& phase = target->phases.back();
  phase.push_back(dependency);
  phase.back().span = target->name_span;  // its own span is in another text
  return phase.back().expr.get();
}

}  // namespace

Plan ExprPlanner::plan_generated(const GeneratedBody& body, const Expr& use) {
  for (const ExprPlanner* planner = this; planner; planner = planner->asked_by_) {
    if (!planner->generation_ || planner->generation_->body->name != body.name) continue;
    problem(use.name_span, "the generated backend " + body.name + " contains itself", "its body is  " + body.text);
    return {};
  }
  Generation generation{&body, use.args, {}, nullptr, nullptr};
  for (const Arg& arg : use.args)
    if (arg.key.empty())
      problem(arg.value_span, "a generated backend takes named parameters, got " + in_quotes(arg.value), "");
  Source source{body.text, "generated backend " + body.name + (source_->where.empty() ? "" : ", " + source_->where)};
  ExprPlanner planner(planning_, node_, std::move(source), is_init_, this);
  planner.generation_ = &generation;
  planner.parent_ = parent_;
  Plan plan = planner.plan_body(use);
  const std::vector<std::string> asked(generation.asked.begin(), generation.asked.end());
  const auto report = [&](Span span, const std::string& key, const std::string& where) {
    if (generation.asked.count(key)) return;
    const std::string near = did_you_mean(near_names(key, asked), true);
    problem(span,
            "unknown parameter \"" + key + "\" " + where + body.name +
                (near.empty() ? "; no backend of its body declares it" : near),
            "its body is  " + body.text);
  };
  for (const Arg& arg : use.args)
    if (!arg.key.empty()) report(arg.key_span, arg.key, "for ");
  if (node_.complete())  // otherwise it may belong to a backend that is not known
    for (const auto& [key, value] : body.defaults) report(use.name_span, key, "in the defaults of ");
  plan.label = use.name;
  return plan;
}

Plan ExprPlanner::plan_body(const Expr& use) {
  try {
    Expr tree = parse_source();
    if (!use.phases.empty()) {
      generation_->foreign = attach(tree, use.phases[0][0]);
      generation_->original = use.phases[0][0].expr.get();
    }
    return plan_expr(tree);
  } catch (const SyntaxError& error) {
    problem(error.span, error.what(), error.hint);
    return {};
  }
}

// The argument of the innermost use that names the parameter.
ExprPlanner::Given ExprPlanner::given(const std::string& name) {
  for (const ExprPlanner* planner = this; planner && planner->generation_; planner = planner->asked_by_) {
    planner->generation_->asked.insert(name);
    for (const Arg& arg : planner->generation_->args)
      if (arg.key == name) return {&arg, planner->asked_by_};
  }
  return {};
}

const Value* ExprPlanner::generated_default(const std::string& name) const {
  for (const ExprPlanner* planner = this; planner && planner->generation_; planner = planner->asked_by_)
    for (const auto& [key, value] : planner->generation_->body->defaults)
      if (key == name) return &value;
  return nullptr;
}

std::string ExprPlanner::text_of(const std::string& key) {
  const Value* value = node_.find(key).value;  // always looked up: a key that is overridden counts as used
  if (const Given said = given(key); said.arg) return said.arg->value;
  if (!value) value = generated_default(key);
  return value && value->kind() == Kind::kStr ? std::string(value->as_text()) : "";
}

bool ExprPlanner::has(const std::string& key) {
  const bool in_node = node_.find(key).value != nullptr;  // always looked up, as in text_of
  return given(key).arg || in_node || generated_default(key);
}

}  // namespace hami
