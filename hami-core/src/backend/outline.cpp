// Outline: writes a plan as an expression again, for another process.

#include <set>
#include <utility>

#include "backend/plan.hpp"

namespace hami {
namespace {

std::string bound_name(std::size_t binding) { return "bound" + std::to_string(binding); }

// How an expression gives the value; null: it cannot.
std::optional<std::string> written(ParamType type, const Value& value) {
  if (value.kind() == Kind::kStr) return std::string(value.as_text());
  if (value.kind() != Kind::kList) return show_value(type, value);
  std::string text;
  const ListObject& list = value.as_list();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Value item = list.at(i);
    const std::string word = item.kind() == Kind::kStr ? std::string(item.as_text()) : show_value(item);
    if (word.empty() || word.find(',') != std::string::npos || is_space_byte(word.front()) ||
        is_space_byte(word.back()))
      return std::nullopt;
    text += (i > 0 ? "," : "") + word;
  }
  return text;
}

class Writer {
 public:
  explicit Writer(Outline& outline) : outline_(outline) {}

  Expr expr_of(const Plan& plan) {
    Expr expr;
    if (plan.binding) {
      expr.name = bound_name(plan.binding);
      return expr;
    }
    const BackendClass& cls = *plan.cls;
    expr.name = cls.name;
    if (cls.owner.empty() || !cls.runs_in.empty()) {  // another process defines it
      if (locals_.insert(cls.name).second) outline_.local.push_back(cls.name);
    } else if (cls.owner != BackendClass().owner) {
      expr.distribution = cls.owner;
    }
    expr.args = plan.args;
    for (const auto& [name, value] : plan.params)
      if (!value.is_none()) write_param(cls, name, value, expr);
    for (const std::vector<PlanItem>& phase : plan.phases) write_phase(phase, expr.phases.emplace_back());
    if (!expr.phases.empty() && expr.phases.back().empty()) expr.phases.pop_back();  // "[]" is not an expression
    return expr;
  }

 private:
  void write_param(const BackendClass& cls, const std::string& name, const Value& value, Expr& expr) {
    ParamType type = ParamType::kStr;
    for (const ParamSpec& spec : cls.params)
      if (spec.name == name) type = spec.type;
    std::optional<std::string> text = is_ident(name) ? written(type, value) : std::nullopt;
    if (text) {
      Arg arg;
      arg.key = name;
      arg.value = std::move(*text);
      arg.quoted = true;
      expr.args.push_back(std::move(arg));
    } else if (!cls.takes_all_keys) {
      write_key(cls.name + "." + name, value);
    }
  }

  void write_key(const std::string& key, const Value& value) {
    for (const auto& [known, other] : outline_.keys) {
      if (known != key) continue;
      if (show_value(other) != show_value(value))
        throw Error(ErrorCode::kConfig, "another process cannot be given two values of \"" + key +
                                            "\": " + show_value(other) + " and " + show_value(value));
      return;
    }
    outline_.keys.emplace_back(key, value);
  }

  void write_phase(const std::vector<PlanItem>& phase, std::vector<Item>& items) {
    for (const PlanItem& planned : phase) {
      Item item;
      if (planned.binding) item.alias = bound_name(planned.binding);
      item.expr = std::make_unique<Expr>();
      if (planned.plan)
        *item.expr = expr_of(*planned.plan);
      else
        item.expr->name = planned.text;
      item.expr->when = planned.when;
      items.push_back(std::move(item));
      if (!planned.plan) continue;
      for (const Plan& absorbed : planned.plan->absorbed) {
        Item next;
        next.expr = std::make_unique<Expr>(expr_of(absorbed));
        items.push_back(std::move(next));
      }
    }
  }

  Outline& outline_;
  std::set<std::string> locals_;
};

std::string outside_of(const Plan& plan, std::set<std::size_t>& bound) {
  if (plan.binding) return bound.count(plan.binding) ? "" : "a name that an IoC around it binds";
  if (!plan.instance.empty()) return "the instance \"" + plan.instance + "\"";
  if (plan.cls && plan.cls->is_instance) return "the object that this program registered as " + plan.cls->name;
  for (const std::vector<PlanItem>& phase : plan.phases)
    for (const PlanItem& item : phase) {
      if (item.plan)
        if (std::string found = outside_of(*item.plan, bound); !found.empty()) return found;
      if (item.binding) bound.insert(item.binding);
    }
  return {};
}

}  // namespace

Outline outline_of(const Plan& plan) {
  Outline outline;
  outline.expression = print(Writer(outline).expr_of(plan));
  return outline;
}

std::string needed_around(const Plan& plan) {
  std::set<std::size_t> bound;
  return outside_of(plan, bound);
}

}  // namespace hami
