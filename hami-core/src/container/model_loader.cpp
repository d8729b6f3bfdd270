// ModelLoader[(.onnx)A,(.trt)B]: selects the item for the node's model file. Resolved when the pipe is planned.
#include "backend/plan.hpp"
#include "registry/registry.hpp"

namespace hami {
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

void register_model_loader(Registry& registry) {
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
