// ExprPlanner: whether the items in brackets are such as the class takes.

#include <algorithm>

#include "pipe/expr_planner.hpp"

namespace hami {
namespace {

// "one backend", "2 to 3 backends", "at least one key".
std::string count_of(const Phase& phase) {
  const char* noun = phase.kind == ItemKind::kBackend    ? "backend"
                     : phase.kind == ItemKind::kInstance ? "instance name"
                                                         : "key";
  const auto many = [&](std::size_t n) {
    return n == 1 ? std::string("one ") + noun : std::to_string(n) + " " + noun + "s";
  };
  if (phase.min == phase.max) return many(phase.min);
  if (phase.max == Phase::kMany) return "at least " + many(phase.min);
  return std::to_string(phase.min) + " to " + std::to_string(phase.max) + " " + noun + "s";
}

}  // namespace

bool ExprPlanner::check_brackets(const Expr& expr, const BackendClass& cls) {
  const Brackets& brackets = cls.brackets;
  const std::string takes = expr.name + " takes " + (brackets.phases.empty() ? "no brackets" : show_brackets(brackets));
  if (expr.phases.empty()) {
    if (brackets.required)
      problem(expr.name_span, expr.name + " needs brackets",
              takes + (expr.args.empty() ? "" : "; parentheses are for parameters"));
    return !brackets.required;
  }
  if (brackets.phases.empty()) {
    problem(expr.span, takes, "");
    return false;
  }
  if (expr.phases.size() != brackets.phases.size()) {
    problem(expr.span,
            takes + ", got " + std::to_string(expr.phases.size()) + (expr.phases.size() == 1 ? " phase" : " phases"),
            "phases are separated by ;");
    return false;
  }
  bool good = true;
  for (std::size_t i = 0; i < expr.phases.size(); ++i) {
    const Phase& phase = brackets.phases[i];
    const std::size_t count = expr.phases[i].size();
    if (count < phase.min || count > phase.max) {
      const std::string at = brackets.phases.size() > 1 ? " in phase " + std::to_string(i + 1) : "";
      problem({expr.phases[i].front().span.begin, expr.phases[i].back().span.end},
              expr.name + " takes " + count_of(phase) + at + ", got " + std::to_string(count), "");
      good = false;
    }
    for (const Item& item : expr.phases[i]) {
      check_when(item, phase, cls);
      if (item.is_setting && cls.reads_settings) continue;
      if (item.is_setting) {
        problem(item.span, expr.name + " takes no settings in its brackets, got \"" + item.setting.key + "\"",
                "write parameters as " + expr.name + "(" + item.setting.key + "=…)[…]");
        good = false;
      } else if (phase.kind != ItemKind::kBackend && !cls.reads_settings &&
                 (!item.expr->phases.empty() || !item.expr->args.empty())) {
        problem(item.span,
                expr.name + " takes the name of " + (phase.kind == ItemKind::kKey ? "a key" : "an instance") +
                    " here, not an expression",
                "");
        good = false;
      }
    }
  }
  return good;
}

void ExprPlanner::check_when(const Item& item, const Phase& phase, const BackendClass& cls) {
  if (item.is_setting || phase.when == std::vector<std::string>{Phase::kAnyWord}) return;
  for (const Arg& arg : item.expr->when) {
    const bool known =
        arg.key.empty() && std::find(phase.when.begin(), phase.when.end(), arg.value) != phase.when.end();
    if (known) continue;
    std::string words;
    for (const std::string& word : phase.when) words += (words.empty() ? "(" : ", (") + word + ")";
    problem(arg.value_span, "\"(" + arg.value + ")\" before an item means nothing to " + cls.name,
            words.empty() ? "" : cls.name + " knows " + words);
  }
}

}  // namespace hami
