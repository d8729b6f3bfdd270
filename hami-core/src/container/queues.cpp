// Queue, Send, Recv and Observer: values that pass through queues of the pipe.
#include <memory>

#include "backend/plan.hpp"
#include "container/node_queues.hpp"
#include "container/result.hpp"
#include "registry/registry.hpp"

namespace hami {
namespace {

// Queue(name) and Send(name): push `data` into the queue; `result` is `data`. They wait for capacity until the request's
// deadline.
class Push final : public Backend {
 public:
  explicit Push(bool sets_capacity) : sets_capacity_(sets_capacity) {}

 private:
  void init_(Init& init) override {
    node_ = init.node();
    const auto name = init.params().get<std::string>("name");
    const auto of_node = node_queue_name(name);
    if (sets_capacity_ && of_node)
      throw Error(ErrorCode::kConfig, "the queue \"" + name +
                                          "\" belongs to its node, whose `max_queue_size` sets its capacity; "
                                          "write Send(" +
                                          name + ")");
    if (sets_capacity_)
      queue_ = init.context().resources.queue(name, static_cast<std::size_t>(init.params().get<std::int64_t>("max")));
    else if (of_node && of_node->instance.empty())
      node_sender_.emplace(init, of_node->node);
    else
      queue_ = open_queue(init, name);
  }

  void forward_(Batch batch) override {
    set_result_to_data(batch);
    for (Request* request : batch) {
      if (!request->alive()) continue;
      try {
        const Value& data = *request->dict.find(kData);
        node_sender_ ? node_sender_->push(data, request->priority, node_) : queue_->push(data, request->deadline);
      } catch (...) {
        request->fail(current_error());
      }
    }
  }

  const bool sets_capacity_;
  std::string node_;
  Ref<Queue> queue_;
  std::optional<NodeSender> node_sender_;  // for the queue of a node, instead of queue_
};

// Recv(name)[B]: runs B on the values of the queue.
class Recv final : public QueueConsumer {
  void init_(Init& init) override {
    const auto name = init.params().get<std::string>("name");
    const auto of_node = node_queue_name(name);
    if (of_node && of_node->instance.empty()) return add_instance(init, of_node->node);
    Ref<Queue> queue = open_queue(init, name);
    connect(init, std::move(queue), init.make(init.items()[0]));
  }

  // Registers B as one more instance of the node, with the next number.
  void add_instance(Init& init, const std::string& node) {
    PipeContext& context = init.context();
    if (context.instances.find("node." + node))
      throw Error(ErrorCode::kConfig, label() + "(" + node +
                                          ".queue) must be before the node's Register: the instances of node \"" +
                                          node + "\" are registered already");
    std::size_t next = 0;
    while (context.instances.find(node + "." + std::to_string(next))) ++next;
    context.instances.add(node + "." + std::to_string(next), init.for_instance(next).make(init.items()[0]));
  }
};

// Observer(name): `result` is the next value of the queue, which it does not remove, or None.
class Observer final : public Backend {
  void init_(Init& init) override {
    const auto name = init.params().get<std::string>("name");
    const auto of_node = node_queue_name(name);
    if (of_node && of_node->instance.empty()) {
      of_node_ = of_node->node;
      context_ = &init.context();
      context_->instances.expect("node." + of_node_, init.node());
    } else {
      queue_ = open_queue(init, name);
    }
  }
  void forward_(Batch batch) override {
    for (Request* request : batch) {
      const std::optional<Value> next = queue_ ? queue_->peek() : context_->resources.first_waiting(of_node_);
      request->dict.set(kResult, next.value_or(Value()));
    }
  }
  Ref<Queue> queue_;
  std::string of_node_;
  PipeContext* context_ = nullptr;  // outlives all backends of its pipe
};

// Recv, Send and Observer of a node's queue call that node, or its instance; Recv registers one more instance.
void declare_queue(const Plan& plan, NameDeclarations& names, bool adds_instance) {
  const Value* given = plan.params.find("name");
  const auto queue = given ? node_queue_name(std::string(given->as_text())) : std::nullopt;
  if (!queue) return;
  if (!queue->instance.empty())
    names.call(queue->instance);
  else if (adds_instance)
    names.register_instances(queue->node, NameDeclarations::kAnyCount);
  else
    names.call("node." + queue->node);
}
void declare_target(const Plan& plan, NameDeclarations& names) { declare_queue(plan, names, false); }
void declare_receiver(const Plan& plan, NameDeclarations& names) { declare_queue(plan, names, true); }

constexpr const char* kNodeQueueDoc =
    "`<node>.queue` is the queue of a node, `<node>.queue.<i>` that of its instance i.";

BackendClass queue_class(const char* name, const std::string& doc) {
  BackendClass cls;
  cls.name = name;
  cls.doc = doc;
  cls.params = parse_param_specs("name: str = default 'name of the queue'");
  return cls;
}

}  // namespace

void register_queues(Registry& registry) {
  BackendClass queue = queue_class(
      "Queue",
      "Pushes `data` into a queue of the pipe and declares its capacity; waits while it is full. `result` is `data`.");
  queue.params = parse_param_specs("name: str = default 'name of the queue'; max: int = 1024 {1..} 'capacity'");
  queue.create = [] { return std::make_shared<Push>(true); };
  registry.add_core(std::make_shared<BackendClass>(std::move(queue)));

  BackendClass send = queue_class(
      "Send", std::string("Pushes `data` into a queue of the pipe; waits while it is full. `result` is `data`.\n") +
                  kNodeQueueDoc + "\nA value that is sent there becomes a request; no caller waits for its result.");
  send.declare_names = declare_target;
  send.create = [] { return std::make_shared<Push>(false); };
  registry.add_core(std::make_shared<BackendClass>(std::move(send)));

  BackendClass recv = queue_class(
      "Recv",
      "Runs its item on the values of a queue of the pipe, on a dedicated thread; has no forward.\n"
      "No caller waits for the results; errors are logged. Values that are queued when the pipe closes still run.\n"
      "`Recv(<node>.queue)[B]`, before the node's `Register`, is one more instance that serves the node's queue.");
  recv.brackets = {true, {Phase{}}};
  recv.owns_threads = true;
  recv.declare_names = declare_receiver;
  recv.create = [] { return std::make_shared<Recv>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(recv)));

  BackendClass observer =
      queue_class("Observer", std::string("`result` is the next value of a queue, or None; it stays in the queue.\n") +
                                  kNodeQueueDoc);
  observer.declare_names = declare_target;
  observer.create = [] { return std::make_shared<Observer>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(observer)));
}

}  // namespace hami
