// Queues of nodes: the consumer's thread, and values that become requests.
#include "container/node_queues.hpp"

#include "base/mutex.hpp"
#include "observe/log.hpp"

namespace hami {
namespace {

BackendPtr proxy(Init& init, std::string instance) {
  Plan plan;
  plan.instance = std::move(instance);
  return init.make(plan);
}

// Whether the error says that a node did not accept the request.
bool is_refusal(const Error& error) {
  const ErrorCode code = error.code();
  return code == ErrorCode::kQueueFull || code == ErrorCode::kPipeClosed || code == ErrorCode::kReentrantCall;
}

// The sink of requests without a caller: logs their errors.
class Unattended final : public CompletionSink {
 public:
  explicit Unattended(std::string sender) : sender_(std::move(sender)) {}

  Parker* complete(Request* const* requests, std::size_t count) noexcept override {
    for (std::size_t i = 0; i < count; ++i) {
      if (requests[i]->alive()) continue;
      {
        MutexLock lock(mutex_);
        if (being_posted_ && is_refusal(*requests[i]->error)) {
          refusal_ = requests[i]->error;
          continue;
        }
      }
      log(sender_, requests[i]->error->message());
    }
    return nullptr;
  }

  // Called after the post: the error if the request was refused.
  std::optional<Error> posted() {
    MutexLock lock(mutex_);
    being_posted_ = false;
    return refusal_;
  }

 private:
  const std::string sender_;
  Mutex mutex_;
  bool being_posted_ HAMI_GUARDED_BY(mutex_) = true;
  std::optional<Error> refusal_ HAMI_GUARDED_BY(mutex_);
};

Ref<Request> request_of(Value data, const PipeContext& context) {
  Ref<Request> request = make_counted<Request>();
  request->parent = context.shutdown.root_request();
  request->dict.set(kData, std::move(data));
  return request;
}

}  // namespace

Consumer::~Consumer() {
  if (queue_) stop();
}

void Consumer::stop() noexcept { queue_->close(); }

bool Consumer::owns_this_thread() noexcept { return worker_ && worker_->is_current(); }

bool Consumer::join(Nanoseconds until) noexcept {
  if (worker_->stop(until)) return true;
  context_->shutdown.report_abandoned(label() + " of node \"" + node_ + "\"");
  return false;
}

void Consumer::consume(Init& init, Ref<Queue> queue, BackendPtr body) {
  node_ = init.node();
  context_ = init.shared_context();
  queue_ = std::move(queue);
  body_ = std::move(body);
  worker_ = std::make_unique<Worker>(label());
  worker_->post([this] { run(); });
  context_->shutdown.add_service(weak_from_this());
}

void Consumer::forward_(Batch) {
  throw Error(ErrorCode::kConfig, label() + " has no forward; it runs on the values of its queue");
}

void Consumer::run() {
  while (std::optional<Value> value = queue_->next()) {
    const Ref<Request> request = request_of(std::move(*value), *context_);
    Request* one = request.get();
    try {
      body_->forward(Batch(&one, 1));
    } catch (...) {
      one->fail(current_error());
    }
    if (one->error) log(node_, label() + ": " + one->error->message());
  }
}

Ref<Queue> open_queue(Init& init, const std::string& name) {
  PipeContext& context = init.context();
  Ref<Queue> queue = context.resources.queue(name);
  const std::optional<NodeQueueName> of_node = node_queue_name(name);
  if (!of_node || of_node->instance.empty() || context.instances.find(name)) return queue;
  const auto consumer = std::make_shared<Consumer>();
  consumer->describe(name, {});
  consumer->consume(init, queue, proxy(init, of_node->instance));
  context.instances.add(name, consumer);
  return queue;
}

NodeInbox::NodeInbox(Init& init, const std::string& node)
    : context_(init.shared_context()), node_(proxy(init, "node." + node)) {}

void NodeInbox::push(const Value& value, std::uint8_t priority, const std::string& sender) {
  const Ref<Request> request = request_of(value, *context_);
  request->priority = priority;
  if (priority > 0) request->dict.enter(std::string(kPriority), std::int64_t{priority});
  const Ref<Unattended> sink = make_counted<Unattended>(sender);
  request->sink = Ref<CompletionSink>(sink.get());
  Request* one = request.get();
  node_->post(Batch(&one, 1), InlinePolicy::kNonBlocking);
  if (const std::optional<Error> refusal = sink->posted()) throw *refusal;
}

}  // namespace hami
