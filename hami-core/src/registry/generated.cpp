// Generated backends: the class of an expression.
#include "registry/generated.hpp"

#include "backend/plan.hpp"
#include "lang/parse.hpp"

namespace hami {

ClassPtr generated_class(GeneratedBody body, std::string owner) {
  parse(body.text);
  BackendClass cls;
  cls.name = body.name;
  cls.owner = std::move(owner);
  cls.doc = "Stands for " + body.text + ".";
  cls.free_args = true;
  cls.brackets = {false, {Phase{}}};
  cls.expand = [body = std::move(body)](PlanContext& context, const Expr& expr) {
    return context.plan_generated(body, expr);
  };
  return std::make_shared<BackendClass>(std::move(cls));
}

}  // namespace hami
