// Reflect, Forward and ModelLoader: replaced by what they refer to when the pipe is planned.

#include <memory>

#include "backend/api.hpp"
#include "container/forwarding.hpp"
#include "registry/api.hpp"

namespace hami {

// ---- Reflect and Forward: references to other expressions and instances. Resolved when the pipe is planned.

namespace {

const std::string& key_in(PlanContext& context, const Item& item) {
  if (!item.expr->phases.empty() || !item.expr->args.empty())
    context.problem(item.span, "Reflect takes the name of a key here, not an expression", "write Reflect[key, X]");
  return item.expr->name;
}

// Reflect[key, X]: the expression that is the value of the key; otherwise X, which is another key or an expression; otherwise
// Identity.
Plan plan_reflect(PlanContext& context, const Expr& expr) {
  std::string key = "backend";
  const Expr* fallback = nullptr;
  const Arg* default_setting = nullptr;
  if (!expr.phases.empty()) {
    const std::vector<Item>& items = expr.phases[0];
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].is_setting && items[i].setting.key == "default" && i > 0)
        default_setting = &items[i].setting;
      else if (items[i].is_setting)
        context.problem(items[i].span,
                        "Reflect takes a key and a default, got the setting \"" + items[i].setting.key + "\"",
                        "write Reflect[key, X] or Reflect[key, default=X]");
      else if (i == 0)
        key = key_in(context, items[i]);
      else
        fallback = items[i].expr.get();
    }
  }
  const bool is_name = fallback && fallback->phases.empty() && fallback->args.empty() && fallback->distribution.empty();
  if (default_setting || is_name) {  // a key of the node if there is one; it counts as used even if `key` has a value
    const std::string& other = default_setting ? default_setting->value : fallback->name;
    const bool is_key = context.has(other);
    if (context.has(key)) return context.plan_value(key);
    if (is_key) return context.plan_value(other);
  }
  if (context.has(key)) return context.plan_value(key);
  if (default_setting) return context.plan_text(default_setting->value);
  if (fallback) return context.plan_expr(*fallback);
  if (key == "backend") context.problem(expr.span, "the node has no backend", "add  backend = \"…\"");
  return context.plan_text("Identity");
}

// BackendProxy: Reflect without brackets under another name.
Plan plan_backend_proxy(PlanContext& context, const Expr& expr) { return plan_reflect(context, expr); }

Plan plan_instance_from_param(PlanContext& context, const Expr& expr) {
  const std::string& key = expr.phases[0][0].expr->name;
  Plan plan;
  plan.label = "InstanceFromParam[" + key + "]";
  plan.instance = context.text_of(key);
  if (plan.instance.empty())
    context.problem(expr.phases[0][0].span, "the node has no `" + key + "` that names an instance",
                    "give  " + key + " = \"node.…\"  in the node");
  else
    context.call_instance(expr.phases[0][0].span, plan.instance);
  return plan;
}

Plan plan_forward(PlanContext& context, const Expr& expr) {
  Plan plan;
  plan.instance = expr.phases[0][0].expr->name;
  if (const ClassPtr cls = Registry::instance().find_known(plan.instance); cls && cls->is_instance)
    return context.plan_expr(*expr.phases[0][0].expr);
  context.call_instance(expr.phases[0][0].span, plan.instance);
  plan.label = "Forward[" + plan.instance + "]";
  return plan;
}

}  // namespace

[[gnu::cold]] void register_references(Registry& registry) {
  BackendClass reflect;
  reflect.name = "Reflect";
  reflect.aliases = {"ProxyFromParam"};
  reflect.doc =
      "Builds the expression that is the value of a key of the node.\n"
      "`Reflect` alone means the key `backend`. In the body of a generated backend, a use `Z(key=X)` can set the key. Without\n"
      "a value: the second item, or `default=X`, where X is another key of the node or else an expression; without either,\n"
      "`Identity`.";
  reflect.range = "as the built backend";
  reflect.brackets = {false, {Phase{1, 2, ItemKind::kKey}}};
  reflect.expand = plan_reflect;
  reflect.reads_settings = true;
  registry.add_core(std::make_shared<BackendClass>(std::move(reflect)));

  BackendClass backend_proxy;
  backend_proxy.name = "BackendProxy";
  backend_proxy.doc = "Builds the expression of the node's key `backend`, as `Reflect` alone does.";
  backend_proxy.range = "as the built backend";
  backend_proxy.expand = plan_backend_proxy;
  registry.add_core(std::make_shared<BackendClass>(std::move(backend_proxy)));

  BackendClass instance_from_param;
  instance_from_param.name = "InstanceFromParam";
  instance_from_param.doc = "Refers to the instance that a key of the node names.";
  instance_from_param.range = "as the instance";
  instance_from_param.brackets = {true, {Phase{1, 1, ItemKind::kKey}}};
  instance_from_param.expand = plan_instance_from_param;
  registry.add_core(std::make_shared<BackendClass>(std::move(instance_from_param)));

  BackendClass forward;
  forward.name = "Forward";
  forward.aliases = {"Proxy"};
  forward.doc =
      "Passes requests to the instance of that name: `node.<node_name>`, or `<node_name>.<i>`.\n"
      "A name under which the program registered an object means that object.";
  forward.range = "as the instance";
  forward.brackets = {true, {Phase{1, 1, ItemKind::kInstance}}};
  forward.expand = plan_forward;
  registry.add_core(std::make_shared<BackendClass>(std::move(forward)));
}

// ---- ModelLoader[(.onnx)A,(.trt)B]: selects the item for the node's model file. Resolved when the pipe is planned.

namespace {

// ".onnx" of "models/a.onnx"; "" if it has none.
std::string suffix_of(const std::string& path) {
  const auto dot = path.rfind('.');
  const auto slash = path.rfind('/');
  return dot == std::string::npos || (slash != std::string::npos && dot < slash) ? "" : path.substr(dot);
}

bool matches(const Item& item, const std::string& suffix) {
  for (const Arg& arg : item.expr->when)
    if (arg.value == suffix) return true;
  return false;
}

Plan plan_model_loader(PlanContext& context, const Expr& expr) {
  const std::string type = context.text_of("model_type");
  const std::string model = context.text_of("model");
  const std::string suffix = type.empty() ? suffix_of(model) : type.front() == '.' ? type : "." + type;
  std::string known;
  const Item* chosen = nullptr;
  for (const Item& item : expr.phases[0]) {
    if (item.expr->when.empty())
      context.problem(item.span, "each item of " + expr.name + " needs a suffix", "write (.onnx)" + item.expr->name);
    for (const Arg& arg : item.expr->when) known += (known.empty() ? "" : ", ") + arg.value;
    if (!chosen && matches(item, suffix)) chosen = &item;
  }
  for (const Item& item : expr.phases[0])
    if (&item != chosen) context.skip_expr(*item.expr);
  if (chosen) return context.plan_expr(*chosen->expr);
  if (type.empty() && model.empty())
    context.problem(expr.name_span, expr.name + " selects by the suffix of `model`, which is missing",
                    "give  model = …  or  model_type = …  in the node");
  else
    context.problem(expr.span, expr.name + " has no item for \"" + (type.empty() ? model : type) + "\"",
                    "it has items for " + known);
  return {};
}

}  // namespace

[[gnu::cold]] void register_model_loader(Registry& registry) {
  BackendClass cls;
  cls.name = "ModelLoader";
  cls.aliases = {"ModelLoadder"};
  cls.doc =
      "Selects the item whose (.suffix) is that of the node's `model`; only that item is built.\n"
      "`model_type` of the node overrides the suffix.";
  cls.range = "as the built item";
  cls.brackets = {true, {Phase{1, Phase::kMany, ItemKind::kBackend, {Phase::kAnyWord}}}};
  cls.expand = plan_model_loader;
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
