// ExprPlanner: names and children. Parameters are in read_params.cpp, brackets in check_brackets.cpp.
#include "pipe/expr_planner.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "lang/api.hpp"

namespace hami {
namespace {

// A container has the strictest traits of its parts.
void add_traits(Traits& whole, const Traits& part) {
  whole.thread = std::min(whole.thread, part.thread);
  whole.non_blocking = whole.non_blocking && part.non_blocking;
  whole.idempotent = whole.idempotent && part.idempotent;
  whole.lightweight = whole.lightweight && part.lightweight;
  whole.most_instances = std::min(whole.most_instances, part.most_instances);
  whole.on_device = whole.on_device || part.on_device;
}

// Non-blocking backends run on the threads of all callers anyway.
bool can_have_more_instances(const Traits& traits) {
  return traits.lightweight && !traits.non_blocking && traits.most_instances > 1;
}

constexpr const char* kDevice = "device";

bool same_device(const Plan& a, const Plan& b) {
  const Value* one = a.params.find(kDevice);
  const Value* other = b.params.find(kDevice);
  return one && other ? show_value(*one) == show_value(*other) : one == other;
}

// Whether `next`, which directly follows `last`, may be absorbed together with it.
bool absorbs(const Plan& last, const PlanItem& item) {
  if (!last.cls || !item.plan || !item.plan->cls || !item.when.empty()) return false;
  const Plan& next = *item.plan;
  const std::vector<std::string>& names = last.cls->absorbs;
  if (next.cls->owner != last.cls->owner || std::find(names.begin(), names.end(), next.cls->name) == names.end())
    return false;
  const Value* fuse = last.params.find(kFuse);
  return fuse && fuse->as_bool() && next.phases.empty() && next.cls->traits.thread == last.cls->traits.thread &&
         same_device(last, next);
}

// Whether the parameter `device` or `provider` names one other than the CPU.
bool is_on_device(const Params& params) {
  for (const char* const key : {kDevice, "provider"}) {
    const Value* device = params.find(key);
    if (!device || device->kind() != Kind::kStr) continue;
    std::string name(device->as_text().substr(0, 3));
    for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (!name.empty() && name != "cpu") return true;
  }
  return false;
}

}  // namespace

// Whether the pipe is within its limits; records the first that is exceeded.
bool ExprPlanner::within_limits(Span span) {
  if (planning_.too_large) return false;
  const char* too_much = planning_.backends > kMaxBackends       ? "has more than 100000 backends"
                         : planning_.text_bytes > kMaxTextOfPipe ? "comes to more than 16 MiB of text"
                         : planning_.nested > kMaxNested         ? "is nested deeper than 1000"
                                                                 : nullptr;
  if (!too_much) return true;
  planning_.too_large = Error(
      ErrorCode::kConfig, message_with_caret(std::string("the pipeline ") + too_much, source_->text, span,
                                             source_->where, "every use of a key or of a generated backend counts"));
  return false;
}

Expr ExprPlanner::parse_source() {
  planning_.text_bytes += source_->text.size();
  if (!within_limits({0, 1})) throw SyntaxError({}, "");
  std::string text;
  const auto lookup = [&](const std::string& key) -> const std::string* {
    const NodeScope::Found found = node_.find(key);
    if (!found.value) return nullptr;
    if (found.unknown) throw SyntaxError({}, "");
    text = found.value->kind() == Kind::kStr ? std::string(found.value->as_text()) : show_value(*found.value);
    return &text;
  };
  return substitute(parse(source_->text), lookup);
}

Plan ExprPlanner::plan_text_of_source() {
  try {
    return plan_expr(parse_source());
  } catch (const SyntaxError& error) {
    node_.give_up();
    problem(error.span, error.what(), error.hint);
    return {};
  }
}

Plan ExprPlanner::plan_value(const std::string& key) {
  if (const Given said = given(key); said.arg) return said.asker->plan_text(said.arg->value);
  const NodeScope::Found found = node_.find(key);
  if (found.unknown) {
    node_.give_up();
    return {};
  }
  if (!found.value) return plan_text(text_of(key));
  Source source{"", node_.where(found.section, key), node_.folder(found.section, key)};
  if (found.value->kind() != Kind::kStr) {
    node_.give_up();
    Span span;
    const std::string text = show_setting(key, *found.value, span);
    planning_.problems.emplace_back(ErrorCode::kConfig,
                                    message_with_caret("\"" + key + "\" must be a pipeline expression in quotes, got " +
                                                           kind_name(found.value->kind()),
                                                       text, span, source.where, ""));
    return {};
  }
  source.text = std::string(found.value->as_text());
  for (const ExprPlanner* planner = this; planner; planner = planner->asked_by_) {
    if (planner->key_ != key) continue;
    node_.give_up();
    planning_.problems.emplace_back(
        ErrorCode::kConfig, message_with_caret("the expression under \"" + key + "\" refers to itself", source.text,
                                               {0, static_cast<std::uint32_t>(source.text.size())}, source.where, ""));
    return {};
  }
  ExprPlanner planner(planning_, node_, std::move(source), false, this);
  planner.key_ = key;
  Plan plan = planner.plan_text_of_source();
  return key == "backend" ? wrapped(std::move(plan)) : std::move(plan);
}

// A node with the key of a wrapping class, as `filter = "F"`, has Filter[F, backend] for a backend; with `otherwise = "B"`,
// Filter[F, backend, B].
Plan ExprPlanner::wrapped(Plan backend) {
  for (const ClassPtr& cls : Registry::instance().node_wrappers()) {
    if (!node_.find_own(cls->wraps_nodes_with).value) {
      report_otherwise_alone(*cls);
      continue;
    }
    Plan plan;
    plan.cls = cls;
    plan.label = cls->name;
    plan.traits = cls->traits;
    plan.phases.emplace_back();
    const auto add_item = [&](std::unique_ptr<Plan> item) {
      if (!item) return;
      add_traits(plan.traits, item->traits);
      plan.phases.back().emplace_back();
      plan.phases.back().back().plan = std::move(item);
    };
    add_item(std::make_unique<Plan>(plan_value(cls->wraps_nodes_with)));
    add_item(std::make_unique<Plan>(std::move(backend)));
    add_item(plan_otherwise(*cls));
    backend = std::move(plan);
  }
  return backend;
}

// The item for the key `otherwise` of a node, or null.
std::unique_ptr<Plan> ExprPlanner::plan_otherwise(const BackendClass& wrapper) {
  const std::string& key = wrapper.wraps_nodes_otherwise;
  const Value* given = key.empty() ? nullptr : node_.find_own(key).value;
  if (!given) return nullptr;
  const std::string_view word = given->kind() == Kind::kStr ? given->as_text() : std::string_view();
  if (word == "pass") return nullptr;
  return std::make_unique<Plan>(word == "skip" ? plan_text("Skip") : plan_value(key));
}

void ExprPlanner::report_otherwise_alone(const BackendClass& wrapper) {
  const std::string& key = wrapper.wraps_nodes_otherwise;
  const NodeScope::Found found = key.empty() ? NodeScope::Found() : node_.find_own(key);
  if (!found.value || found.unknown) return;
  Span span;
  const std::string text = show_setting(key, *found.value, span);
  planning_.problems.emplace_back(
      ErrorCode::kConfig,
      message_with_caret("node \"" + node_.name() + "\" has " + key + " and no " + wrapper.wraps_nodes_with, text, span,
                         node_.where(found.section, key), "add  " + wrapper.wraps_nodes_with + " = \"…\""));
}

// The text replaces this planner's own: the same generated backends and keys enclose it.
Plan ExprPlanner::plan_text(const std::string& text) {
  ExprPlanner planner(planning_, node_, {text, source_->where, source_->folder}, false, asked_by_);
  planner.generation_ = generation_;
  planner.key_ = key_;
  return planner.plan_text_of_source();
}

// Its errors are not reported here, so they must be reported where the same name is used elsewhere.
void ExprPlanner::skip_expr(const Expr& expr) {
  const std::size_t before = planning_.problems.size();
  Explanation* const explanation = std::exchange(planning_.explanation, nullptr);
  std::set<std::string> causes = planning_.causes;
  InstanceNames instances = std::exchange(planning_.instances, {});
  plan_expr(expr);
  planning_.instances = std::move(instances);
  planning_.causes = std::move(causes);
  planning_.explanation = explanation;
  planning_.problems.erase(planning_.problems.begin() + static_cast<std::ptrdiff_t>(before), planning_.problems.end());
}

void ExprPlanner::add(ErrorCode code, Span span, const std::string& headline, const std::string& hint) {
  planning_.problems.emplace_back(code, message_with_caret(headline, source_->text, span, source_->where, hint));
}

void ExprPlanner::call_instance(Span span, const std::string& name) { planning_.instances.call(name, {span, source_}); }

void ExprPlanner::problem(Span span, const std::string& headline, const std::string& hint) {
  if (headline.empty()) return;  // about an unknown value, whose error was reported
  add(ErrorCode::kConfig, span, headline, hint);
}

// A name that an enclosing IoC binds, or an instance; empty if it is neither.
Plan ExprPlanner::plan_existing(const Expr& expr) {
  const bool bare = expr.phases.empty() && expr.args.empty() && expr.distribution.empty();
  Plan plan;
  plan.label = expr.name;
  if (bare) {
    const auto bound =
        std::find_if(scope_.rbegin(), scope_.rend(), [&](const Bound& b) { return b.name == expr.name; });
    if (bound != scope_.rend()) {
      plan.binding = bound->binding;
      plan.traits = bound->traits;
      return plan;
    }
  }
  if (expr.distribution.empty() && expr.name.find('.') != std::string::npos) {
    plan.instance = expr.name;
    if (bare)
      call_instance(expr.span, expr.name);
    else
      problem(expr.span, "\"" + expr.name + "\" is an instance; it takes no parameters and no brackets", "");
  }
  return plan;
}

ClassPtr ExprPlanner::find_class(const Expr& expr) {
  try {
    return Registry::instance().find(expr.name, expr.distribution, node_.config().providers);
  } catch (const MissingBackend& missing) {
    if (missing.cause.empty() || planning_.causes.insert(missing.cause).second)
      add(missing.code, expr.name_span, missing.headline, missing.hint);
  }
  node_.give_up();
  return nullptr;
}

Plan ExprPlanner::plan_expr(const Expr& expr) {
  ++planning_.backends;
  ++planning_.nested;
  Plan plan = within_limits(expr.name_span) ? plan_counted(expr) : Plan{};
  --planning_.nested;
  return plan;
}

Plan ExprPlanner::plan_counted(const Expr& expr) {
  if (generation_ && &expr == generation_->foreign) return asked_by_->plan_expr(*generation_->original);
  Plan plan = plan_existing(expr);
  if (plan.binding || !plan.instance.empty()) return plan;
  plan.cls = find_class(expr);
  if (!plan.cls) return plan;
  const BackendClass& cls = *plan.cls;
  if (!cls.runs_in.empty() && !planning_.outlined) return plan_in_container(expr, cls.runs_in);
  if (cls.schedules && !is_init_)
    problem(expr.name_span, expr.name + " schedules a node and is only allowed in a node's init expression",
            "put it under `node_entrypoint`");
  if (!check_brackets(expr, cls)) {
    node_.give_up();
    return plan;
  }
  if (cls.expand) return cls.expand(*this, expr);
  plan.traits = cls.traits;
  const std::size_t problems = planning_.problems.size();
  read_params(expr, cls, plan);
  const bool has_good_params = planning_.problems.size() == problems;
  plan.traits.on_device = is_on_device(plan.params);
  if (plan.traits.on_device) plan.traits.most_instances = plan.traits.instances_on_device;
  if (!cls.refuses_copies.empty() && planning_.copies > 1)
    problem(expr.name_span,
            expr.name + " is part of the backend of node \"" + node_.name() + "\", which has several instances",
            cls.refuses_copies);
  planning_.instances.note(plan, node_, {expr.name_span, source_});
  // A default child has parameters of its parent, whose problems are reported once.
  if (expr.phases.empty() && !cls.default_child.empty() && has_good_params) plan_default_child(expr, cls, plan);
  plan_items(expr, cls, plan);
  return plan;
}

// container[expr], for an expression that is written without the container.
Plan ExprPlanner::plan_in_container(const Expr& expr, const std::string& container) {
  Expr outer;
  outer.name = container;
  outer.name_span = outer.span = expr.name_span;
  Plan plan;
  plan.label = container + "[" + expr.name + "]";
  plan.cls = find_class(outer);
  if (!plan.cls) return plan;
  plan.traits = plan.cls->traits;
  read_params(outer, *plan.cls, plan);
  ++planning_.outlined;
  ++planning_.depth;
  auto item = std::make_unique<Plan>(plan_expr(expr));
  --planning_.depth;
  --planning_.outlined;
  Item named;
  named.span = expr.span;
  check_outlined(named, *item);
  plan.traits.idempotent = plan.traits.idempotent && item->traits.idempotent;
  plan.traits.on_device = item->traits.on_device;
  plan.phases.emplace_back().emplace_back().plan = std::move(item);
  return plan;
}

void ExprPlanner::check_outlined(const Item& item, const Plan& plan) {
  const std::string needed = needed_around(plan);
  if (!needed.empty())
    problem(item.span, "a backend in another process cannot use " + needed,
            "write the whole expression inside the brackets, or make the other backend a node after this one");
}

// Moves an item into the one before it, if that one can do the work of both.
bool ExprPlanner::absorb(std::vector<PlanItem>& before, PlanItem& item) {
  if (before.empty() || !before.back().plan) return false;
  Plan& first = *before.back().plan;
  if (!absorbs(first.absorbed.empty() ? first : first.absorbed.back(), item)) return false;
  add_traits(first.traits, item.plan->traits);
  first.label += "+" + item.plan->label;
  first.absorbed.push_back(std::move(*item.plan));
  return true;
}

// Nothing if no such backend is installed. Names that are bound around the expression are not visible to it.
void ExprPlanner::plan_default_child(const Expr& use, const BackendClass& cls, Plan& plan) {
  Expr child;
  child.name = cls.default_child;
  child.name_span = child.span = use.name_span;
  try {
    Registry::instance().find(child.name, "", node_.config().providers);
  } catch (const MissingBackend& missing) {
    if (missing.code != ErrorCode::kBackendNotFound) plan.absent_child = missing.headline;
    return;
  }
  std::vector<Bound> scope = std::exchange(scope_, {});
  const Params* const parent = std::exchange(parent_, &plan.params);
  ++planning_.depth;
  auto planned = std::make_unique<Plan>(plan_expr(child));
  --planning_.depth;
  parent_ = parent;
  scope_ = std::move(scope);
  add_traits(plan.traits, planned->traits);
  plan.phases.emplace_back().emplace_back().plan = std::move(planned);
}

void ExprPlanner::plan_items(const Expr& expr, const BackendClass& cls, Plan& plan) {
  const std::size_t outer_scope = scope_.size();
  const std::int64_t copies = planning_.copies;
  const Value* const count = cls.makes_copies ? plan.params.find(kInstanceNum) : nullptr;
  const bool is_auto = count && count->kind() != Kind::kInt, one_per_core = count && !is_auto && count->as_int() == 0;
  if (count) planning_.copies = one_per_core ? usable_cores() : is_auto ? 1 : count->as_int();
  const Traits own = plan.traits;
  if (cls.outlines_items) ++planning_.outlined;
  for (std::size_t i = 0; i < expr.phases.size(); ++i) {
    const Phase& phase = cls.brackets.phases[i];
    plan.phases.emplace_back();
    for (const Item& item : expr.phases[i]) {
      PlanItem planned;
      planned.when = item.expr->when;
      const std::size_t explained = planning_.explanation ? planning_.explanation->part->backends.size() : 0;
      if (phase.kind == ItemKind::kBackend) {
        ++planning_.depth;
        planned.plan = std::make_unique<Plan>(plan_expr(*item.expr));
        --planning_.depth;
        add_traits(plan.traits, planned.plan->traits);
        if (cls.outlines_items) check_outlined(item, *planned.plan);
      } else {
        planned.text = item.expr->name;
        if (phase.kind == ItemKind::kInstance && plan.phases.back().empty()) call_instance(item.span, planned.text);
      }
      if (!item.alias.empty() && !(cls.binds_names && i == 0))
        problem(item.alias_span, "an alias means nothing to " + cls.name,
                "aliases name the items of IoC before its `;`");
      if (cls.binds_names && i == 0) {
        planned.binding = ++planning_.last_binding;
        scope_.push_back({item.alias.empty() ? item.expr->name : item.alias, planned.binding, planned.plan->traits});
      }
      if (cls.runs_in_order && absorb(plan.phases.back(), planned)) {
        if (planning_.explanation) planning_.explanation->part->backends[explained].is_absorbed = true;
        continue;
      }
      plan.phases.back().push_back(std::move(planned));
    }
  }
  const std::int64_t wanted = std::exchange(planning_.copies, copies);
  if (one_per_core || (is_auto && !can_have_more_instances(plan.phases[0][0].plan->traits))) {
    const Value settled(std::min(wanted, plan.phases[0][0].plan->traits.most_instances));
    plan.params.set(kInstanceNum, settled);
    if (planning_.explanation) planning_.explanation->part->settle(kInstanceNum, settled);
  }
  scope_.resize(outer_scope);
  if (cls.owns_threads) plan.traits.thread = ThreadMode::kConcurrent;
  if (cls.outlines_items) {
    --planning_.outlined;
    plan.traits.thread = own.thread;
  }
}

}  // namespace hami
