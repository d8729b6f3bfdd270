// Interpreter: from plan to backends.
#include "pipe/interpreter.hpp"

#include "sync/event.hpp"
#include "registry/registry.hpp"

namespace hami {
namespace {

// The root of one expression. Its backends find the event in their options that tells them when all of it is there.
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
      "What every pipe is: makes each node by its init expression, then the entrypoint, which takes the requests.\n"
      "Each node has its own parameters. It stands in no expression.";
  cls.range = "that of the entrypoint";
  cls.expand = [](PlanContext& context, const Expr& expr) {
    context.problem(expr.name_span, "Interpreter is the pipe itself and stands in no expression",
                    "choose what it makes by `node_entrypoint` of each node, and what it runs by `entrypoint`");
    return Plan{};
  };
  registry.add_core(std::make_shared<BackendClass>(std::move(cls)));
}

}  // namespace hami
