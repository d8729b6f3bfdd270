// Runs backends on the values of queues, and sends values to nodes.
#include "container/node_queues.hpp"

#include <new>

#include "base/assert.hpp"
#include "base/mutex.hpp"
#include "observe/log.hpp"

namespace hami {
namespace {

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

}  // namespace

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

}  // namespace hami
