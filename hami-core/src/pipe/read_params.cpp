// ExprPlanner: the value of each declared parameter, by the scopes of reference/expressions.md.

#include <algorithm>
#include <set>
#include <utility>

#include "lang/api.hpp"
#include "pipe/expr_planner.hpp"

namespace hami {
namespace {

std::vector<std::string> names_of(const BackendClass& cls) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : cls.params)
    for (std::string& name : spec.spellings()) names.push_back(std::move(name));
  return names;
}

bool has_spelling(const ParamSpec& spec, const std::string& name) {
  return spec.name == name || std::find(spec.aliases.begin(), spec.aliases.end(), name) != spec.aliases.end();
}

// A value of the declared type that the configuration may give; `folder`: of the file that contains it. Error(kConfig)
Value configured_param(const ParamSpec& spec, const Value& given, const std::string& owner, const std::string& folder) {
  Value value = coerce_param(spec, given, owner);
  if (!is_path(spec.type) || value.is_none()) return value;
  const std::string what = "parameter \"" + spec.name + "\" of " + owner;
  const std::string written(value.as_text());
  // The system's loader searches for a library without a slash.
  const bool is_name = spec.type == ParamType::kLibrary && written.find('/') == std::string::npos;
  const std::string path = is_name ? written : path_in(folder, written);
  if (spec.type == ParamType::kLibrary) check_library(path, what);
  if (spec.type == ParamType::kFile) check_file(path, written, what);
  return Value(path);
}

// A value of a backend as a configuration would give it to its default child.
Value as_configured(const ParamSpec& spec, const Value& value) {
  const bool has_unit = spec.type == ParamType::kDuration && value.kind() == Kind::kFloat;
  return has_unit ? Value(show_value(spec.type, value)) : value;
}

}  // namespace

std::string show_accepted(const BackendClass& cls) {
  if (cls.params.empty()) return "(accepts no parameters)";
  std::string text = "(accepts: ";
  for (const ParamSpec& spec : cls.params) text += (&spec == &cls.params.front() ? "" : ", ") + show_param(spec);
  return text + ")";
}

// Sorts the arguments of "(…)" by declared parameter. False: there were errors.
bool ExprPlanner::read_args(const Expr& expr, const BackendClass& cls, std::vector<const Arg*>& by_spec) {
  by_spec.assign(cls.params.size(), nullptr);
  std::size_t position = 0;
  bool good = true;
  for (const Arg& arg : expr.args) {
    std::size_t index = 0;
    if (arg.key.empty()) {
      index = position++;
      if (index >= cls.params.size()) {
        problem(arg.value_span,
                expr.name + " takes " + std::to_string(cls.params.size()) +
                    (cls.params.size() == 1 ? " parameter" : " parameters") + ", got one more",
                show_accepted(cls));
        good = false;
        continue;
      }
    } else {
      while (index < cls.params.size() && !has_spelling(cls.params[index], arg.key)) ++index;
      if (index == cls.params.size()) {
        problem(arg.key_span,
                "unknown parameter \"" + arg.key + "\" for " + expr.name +
                    did_you_mean(near_names(arg.key, names_of(cls)), true) + "  " + show_accepted(cls),
                "");
        good = false;
        continue;
      }
    }
    if (by_spec[index]) {
      problem(arg.value_span, "parameter \"" + cls.params[index].name + "\" of " + expr.name + " is given twice",
              cls.params[index].type == ParamType::kList
                  ? "write a list in quotes: " + cls.params[index].name + "='…, …'"
                  : "");
      good = false;
    }
    by_spec[index] = &arg;
  }
  return good;
}

// The folder of the file that contains an argument: of this text, or of one that uses a generated backend around it.
const std::string& ExprPlanner::folder_of(const Arg& arg) const {
  for (const ExprPlanner* planner = this; planner && planner->generation_; planner = planner->asked_by_) {
    const std::vector<Arg>& args = planner->generation_->args;
    for (const Arg& each : args)
      if (&each == &arg) return planner->asked_by_->source_->folder;
  }
  return source_->folder;
}

void ExprPlanner::explain(const ParamSpec& spec, const Value& value, ExplainedParam::From from,
                          const std::string& key) {
  if (!planning_.explanation) return;
  planning_.explanation->part->backends.back().params.push_back(
      {spec.name, value, value.is_none() ? "None" : show_value(spec.type, value), from, key, spec.type});
}

void ExprPlanner::read_params(const Expr& expr, const BackendClass& cls, Plan& plan) {
  if (planning_.explanation)
    planning_.explanation->part->backends.push_back(
        {expr.name, cls.name, cls.owner, planning_.depth, {}, cls.schedules, cls.makes_copies, cls.uses_python});
  if (cls.takes_all_keys) return read_all_keys(expr, plan);
  if (cls.free_args) {
    plan.args = expr.args;
    ParamSpec any;
    for (const Arg& arg : expr.args) {
      any.name = arg.key;
      explain(any, Value(arg.value), ExplainedParam::From::kExpression);
    }
    return;
  }
  std::vector<const Arg*> by_spec;
  const bool args_good = read_args(expr, cls, by_spec);
  for (std::size_t i = 0; i < cls.params.size(); ++i) read_param(expr, cls, cls.params[i], by_spec[i], args_good, plan);
}

void ExprPlanner::read_all_keys(const Expr& expr, Plan& plan) {
  using From = ExplainedParam::From;
  const auto set = [&](const std::string& name, Value value, From from, const std::string& key) {
    ParamSpec any;
    any.name = name;
    explain(any, value, from, key);
    plan.params.set(name, std::move(value));
  };
  std::set<std::string> given;
  for (const Arg& arg : expr.args) {
    if (arg.key.empty()) {
      problem(arg.value_span, expr.name + " takes named parameters, got " + in_quotes(arg.value), "write name=value");
      continue;
    }
    given.insert(arg.key);
    set(arg.key, Value(arg.value), From::kExpression, "");
  }
  for (const NodeScope::Found& found : node_.find_all())
    if (!given.count(found.key))
      set(found.key, *found.value, found.section == "global" ? From::kGlobal : From::kNode, found.key);
}

// The value of a parameter in the node, under any spelling; `qualifier`: of the keys "qualifier.name".
NodeScope::Found ExprPlanner::find_param(const ParamSpec& spec, const std::string& qualifier) {
  NodeScope::Found best;
  for (const std::string& name : spec.spellings()) {
    const NodeScope::Found found = qualifier.empty() ? node_.find(name) : node_.find_own(qualifier + "." + name);
    if (!found.value) continue;
    if (best.value && best.section == found.section) report_same_param(best, found);
    if (!best.value || (best.section == "global" && found.section != "global")) best = found;
  }
  return best;
}

void ExprPlanner::report_same_param(const NodeScope::Found& one, const NodeScope::Found& other) {
  if (other.unknown || !planning_.causes.insert("same parameter/" + other.section + "/" + other.key).second) return;
  Span span;
  const std::string text = show_setting(other.key, *other.value, span);
  planning_.problems.emplace_back(
      ErrorCode::kConfig, message_with_caret("\"" + one.key + "\" and \"" + other.key + "\" are the same parameter",
                                             text, span, node_.where(other.section, other.key), "remove one of them"));
}

// The argument of the innermost use of a generated backend that names the parameter, under any spelling; or null.
const Arg* ExprPlanner::given(const ParamSpec& spec) {
  const Arg* found = nullptr;
  for (const std::string& name : spec.spellings())
    if (const Arg* arg = given(name).arg; arg && !found) found = arg;
  return found;
}

const Value* ExprPlanner::generated_default(const ParamSpec& spec) const {
  for (const std::string& name : spec.spellings())
    if (const Value* value = generated_default(name)) return value;
  return nullptr;
}

// `arg`: the argument in the expression, or null.
void ExprPlanner::read_param(const Expr& expr, const BackendClass& cls, const ParamSpec& spec, const Arg* arg,
                             bool args_good, Plan& plan) {
  using From = ExplainedParam::From;
  const auto set = [&](Value value, From from, const std::string& key = "") {
    explain(spec, value, from, key);
    plan.params.set(spec.name, std::move(value));
  };
  // All keys are looked up: a key that is overridden counts as used.
  const NodeScope::Found as_written = find_param(spec, expr.name);
  const NodeScope::Found as_named = find_param(spec, cls.name);
  const NodeScope::Found plain = find_param(spec, "");
  const Value* const inherited = arg || !parent_ ? nullptr : parent_->find(spec.name);
  if (inherited && !inherited->is_none()) {
    try {
      set(coerce_param(spec, as_configured(spec, *inherited), expr.name), From::kParent);
    } catch (const Error& error) {
      problem(expr.name_span, error.message(), "");
    }
    return;
  }
  const Arg* outer = arg ? nullptr : given(spec);
  if (const Arg* given = arg ? arg : outer) {
    try {
      set(configured_param(spec, Value(given->value), expr.name, folder_of(*given)),
          outer ? From::kGenerated : From::kExpression);
    } catch (const Error& error) {
      problem(outer ? expr.name_span : given->value_span, error.message(), "");
    }
    return;
  }
  const NodeScope::Found& found = as_written.value ? as_written : as_named.value ? as_named : plain;
  if (found.unknown) return;
  if (found.value) {
    try {
      set(configured_param(spec, *found.value, expr.name, node_.folder(found.section, found.key)),
          found.section == "global" ? From::kGlobal : From::kNode, found.key);
    } catch (const Error& error) {
      Span span;
      const std::string text = show_setting(found.key, *found.value, span);
      planning_.problems.emplace_back(
          ErrorCode::kConfig,
          message_with_caret(error.message(), text, span, node_.where(found.section, found.key), ""));
    }
  } else if (const Value* fallback = generated_default(spec)) {
    try {
      set(coerce_param(spec, *fallback, expr.name), From::kGenerated);
    } catch (const Error& error) {
      problem(expr.name_span, error.message(), "");
    }
  } else if (!spec.required) {
    set(spec.fallback, From::kDefault);
  } else if (args_good) {  // otherwise it may be the misspelt argument
    problem(expr.name_span, "parameter \"" + spec.name + "\" of " + expr.name + " is missing",
            "give  " + spec.name + " = …  in the node, or write " + expr.name + "(" + spec.name + "=…)  " +
                show_accepted(cls));
  }
}

}  // namespace hami
