// Interpreter: from plan to backends.
#include "pipe/interpreter.hpp"

#include "registry/api.hpp"

namespace hami {
namespace {

// Builds the root of one expression. Its backends find an event in their options that completes when all of them are
// initialised.
BackendPtr make_root(const std::string& node, const Plan& plan, const std::shared_ptr<PipeContext>& context) {
  const Ref<Event> ready = make_object<Event>();
  const auto options = std::make_shared<Dict>();
  options->set(kInitEvent, Value::share(*ready));
  try {
    BackendPtr root = Init(context, node, options).make(plan);
    ready->notify();
    return root;
  } catch (...) {
    Error error = current_error();
    if (!node.empty()) error = error.with_note("node \"" + node + "\"");
    ready->fail(error);
    throw error;
  }
}

}  // namespace

Interpreter::~Interpreter() {
  entrypoint_ = nullptr;
  while (!nodes_.empty()) nodes_.pop_back();
}

void Interpreter::make(const PipePlan& plan, const std::shared_ptr<PipeContext>& context) {
  for (const auto& [name, root] : plan.nodes) nodes_.push_back(make_root(name, root, context));
  entrypoint_ = make_root(plan.nodes.size() == 1 ? plan.nodes[0].first : "", plan.entry, context);
  describe("Interpreter", entrypoint_->traits());
}

void register_interpreter(Registry& registry) {
  BackendClass cls;
  cls.name = "Interpreter";
  cls.doc =
      "The top of every pipe: builds each node by its init expression, then the entrypoint, which accepts the requests.\n"
      "Each node has its own parameters. It is not allowed in an expression.";
  cls.range = "as the entrypoint";
  cls.expand = [](PlanContext& context, const Expr& expr) {
    context.problem(
        expr.name_span, "Interpreter is the pipe itself and is not allowed in an expression",
        "set `node_entrypoint` of a node to choose what it builds, and `entrypoint` to choose what it runs");
    return Plan{};
  };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
