// Queue, Send, Recv and Observer: values that pass through queues of the pipe.

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "backend/api.hpp"
#include "container/forwarding.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

// ---- QueueConsumer and NodeSender: the two ends of queues whose values become requests.

// Runs a backend on the values of a queue, on a dedicated thread. No caller waits for the results; errors are logged. Values
// that are queued when the pipe closes still run.
class QueueConsumer : public Backend, public Service, public std::enable_shared_from_this<QueueConsumer> {
 public:
  ~QueueConsumer() override;
  void start() override;
  void stop() noexcept override;
  bool join(Nanoseconds until) override { return worker_->stop(until); }
  std::vector<std::string> running() override;
  bool is_quiet() override { return queue_->starved(); }

  // Called once, while the pipe is built. The thread starts when the pipe is complete: until then, values wait.
  void connect(Init& init, Ref<Queue> queue, BackendPtr target);

 private:
  void forward_(Batch batch) override;
  void run() noexcept;
  std::optional<Error> run_on(Value value) noexcept;
  void log_error(const Error& error) const noexcept;

  std::string node_;
  std::shared_ptr<PipeContext> context_;
  Ref<Queue> queue_;
  BackendPtr target_;
  std::unique_ptr<Worker> worker_;  // last: it ends before the members that it uses
};

// Sends values to a node and does not wait for results.
class NodeSender {
 public:
  NodeSender(Init& init, const std::string& node);
  // Throws Error if the node does not accept the value. `sender` is the source of log messages about later errors.
  void push(const Value& value, std::uint8_t priority, const std::string& sender);

 private:
  std::shared_ptr<PipeContext> context_;
  BackendPtr node_;
};

BackendPtr instance_proxy(Init& init, std::string instance) {
  Plan plan;
  plan.instance = std::move(instance);
  return init.make(plan);
}

// Whether the error means that a node did not accept the request.
bool is_rejection(const Error& error) {
  const ErrorCode code = error.code();
  return code == ErrorCode::kQueueFull || code == ErrorCode::kPipeClosed || code == ErrorCode::kReentrantCall;
}

// The sink of requests without a caller. Logs their errors; keeps a rejection that occurs during `post` for the sender.
class DetachedSink final : public CompletionSink {
 public:
  explicit DetachedSink(std::string sender) : sender_(std::move(sender)) {}

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    for (std::size_t i = 0; i < count; ++i) {
      if (requests[i]->alive() || requests[i]->error->code() == ErrorCode::kCancelled) continue;  // its pipe closes
      {
        MutexLock lock(mutex_);
        if (is_posting_ && is_rejection(*requests[i]->error)) {
          rejection_ = requests[i]->error;
          continue;
        }
      }
      log(sender_, requests[i]->error->message());
    }
    return nullptr;
  }

  // Called once, after `post` has returned. The error, if the node rejected the request.
  std::optional<Error> end_post() {
    MutexLock lock(mutex_);
    HAMI_ASSERT(is_posting_);
    is_posting_ = false;
    return rejection_;
  }

 private:
  const std::string sender_;
  Mutex mutex_;
  bool is_posting_ HAMI_GUARDED_BY(mutex_) = true;
  std::optional<Error> rejection_ HAMI_GUARDED_BY(mutex_);
};

Ref<Request> request_of(Value data, const PipeContext& context) {
  Ref<Request> request = make_counted<Request>();
  request->parent = context.shutdown.root_request();
  request->dict.set(kData, std::move(data));
  return request;
}

QueueConsumer::~QueueConsumer() {
  if (queue_) stop();
}

void QueueConsumer::stop() noexcept { queue_->close(); }

std::vector<std::string> QueueConsumer::running() {
  if (queue_->starved()) return {};
  return {label() + " of node \"" + node_ + "\""};
}

void QueueConsumer::connect(Init& init, Ref<Queue> queue, BackendPtr target) {
  HAMI_ASSERT(!queue_);
  node_ = init.node();
  context_ = init.shared_context();
  queue_ = std::move(queue);
  target_ = std::move(target);
  context_->shutdown.add_service(weak_from_this());
}

void QueueConsumer::start() {
  worker_ = std::make_unique<Worker>(label(), context_.get());
  worker_->post([this] { run(); });
}

void QueueConsumer::forward_(Batch) {
  throw Error(ErrorCode::kConfig, label() + " has no forward; it runs on the values of its queue");
}

void QueueConsumer::run() noexcept {
  while (std::optional<Value> value = queue_->next())
    if (const std::optional<Error> error = run_on(std::move(*value))) log_error(*error);
}

std::optional<Error> QueueConsumer::run_on(Value value) noexcept {
  try {
    const Ref<Request> request = request_of(std::move(value), *context_);
    Request* one = request.get();
    target_->forward(Batch(&one, 1));
    return request->error;
  } catch (...) {
    return current_error();
  }
}

void QueueConsumer::log_error(const Error& error) const noexcept {
  try {
    log(node_, label() + ": " + error.message());
  } catch (const std::bad_alloc&) {
    log(node_, error.message());
  }
}

// The queue of the pipe with this name, created on first use. The queue of an instance gets a consumer that runs the instance.
Ref<Queue> open_queue(Init& init, const std::string& name) {
  PipeContext& context = init.context();
  Ref<Queue> queue = context.resources.queue(name);
  const std::optional<NodeQueueName> of_node = node_queue_name(name);
  if (!of_node || of_node->instance.empty() || context.instances.find(name)) return queue;
  const auto consumer = std::make_shared<QueueConsumer>();
  consumer->describe(name, {});
  consumer->connect(init, queue, instance_proxy(init, of_node->instance));
  context.instances.add(name, consumer);
  return queue;
}

NodeSender::NodeSender(Init& init, const std::string& node)
    : context_(init.shared_context()), node_(instance_proxy(init, "node." + node)) {}

void NodeSender::push(const Value& value, std::uint8_t priority, const std::string& sender) {
  const Ref<Request> request = request_of(value, *context_);
  request->priority = priority;
  if (priority > 0) request->dict.enter(std::string(kPriority), std::int64_t{priority});
  const Ref<DetachedSink> sink = make_counted<DetachedSink>(sender);
  request->sink = Ref<CompletionSink>(sink.get());
  Request* one = request.get();
  node_->post(Batch(&one, 1), InlinePolicy::kNonBlocking);
  if (const std::optional<Error> rejection = sink->end_post()) throw *rejection;
}

// ---- Queue, Send, Recv and Observer.

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

[[gnu::cold]] void register_queues(Registry& registry) {
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
