// Generated backends: the class and its definition from text.
#include "registry/generated.hpp"

#include "backend/plan.hpp"
#include "lang/parse.hpp"
#include "registry/registry.hpp"

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

bool generate_backend(const std::string& name, const std::string& text, const std::string& defaults) {
  const std::string call = name + (defaults.empty() ? "" : "(" + defaults + ")");
  try {
    GeneratedBody body{name, text, {}};
    for (const Arg& arg : parse(call).args) {
      if (arg.key.empty()) throw SyntaxError(arg.value_span, "expected key=value", "");
      body.defaults.emplace_back(arg.key, Value(arg.value));
    }
    Registry::instance().define(generated_class(std::move(body)));
  } catch (const SyntaxError& error) {
    throw Error(ErrorCode::kConfig, "backend \"" + name + "\" cannot be generated from \"" + text + "\" with \"" +
                                        defaults + "\": " + error.what());
  }
  return true;
}

}  // namespace hami
