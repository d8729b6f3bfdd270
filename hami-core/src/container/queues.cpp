// Queue, Send, Recv and Observer: values that leave the request's way through queues of the pipe.
#include <memory>

#include "base/queue.hpp"
#include "base/worker.hpp"
#include "container/answer.hpp"
#include "observe/log.hpp"
#include "registry/init.hpp"
#include "registry/registry.hpp"

namespace hami {
namespace {

// Queue(name) and Send(name): `data` goes into the queue, and on as `result`. Waits for room as long as the request may.
class Push final : public Backend {
 public:
  explicit Push(bool declares) : declares_(declares) {}

 private:
  void init_(Init& init) override {
    const auto name = init.params().get<std::string>("name");
    if (declares_)
      queue_ = init.context().queue(name, static_cast<std::size_t>(init.params().get<std::int64_t>("max")));
    else
      queue_ = init.context().queue(name);
  }

  void forward_(Batch batch) override {
    answer_with_data(batch);
    for (Request* request : batch) {
      if (!request->alive()) continue;
      try {
        queue_->push(*request->dict.find(kData), request->deadline);
      } catch (...) {
        request->fail(current_error());
      }
    }
  }

  const bool declares_;
  Ref<Queue> queue_;
};

// Recv(name)[B]: takes what arrives and runs B on it, on a thread of its own. Nobody waits for the answers: failures are
// logged. What is in the queue when the pipe closes is still run.
class Recv final : public Backend, public Stoppable, public std::enable_shared_from_this<Recv> {
 public:
  ~Recv() override { stop(); }
  void stop() noexcept override { queue_->close(); }
  bool owns_this_thread() noexcept override { return worker_ && worker_->is_current(); }
  bool join(Nanoseconds until) noexcept override {
    if (worker_->stop(until)) return true;
    context_->report_abandoned(label() + " of node \"" + node_ + "\"");
    return false;
  }

 private:
  void init_(Init& init) override {
    node_ = init.node();
    context_ = init.shared_context();
    queue_ = context_->queue(init.params().get<std::string>("name"));
    body_ = init.make(init.items()[0]);
    worker_ = std::make_unique<Worker>(label());
    worker_->post([this] { consume(); });
    context_->add_stoppable(weak_from_this());
  }

  void forward_(Batch) override { throw Error(ErrorCode::kConfig, "Recv has no forward; it runs on what its queue brings"); }

  void consume() {
    while (std::optional<Value> value = queue_->next()) {
      const Ref<Request> request = make_counted<Request>();
      request->dict.set(kData, std::move(*value));
      Request* one = request.get();
      try {
        body_->forward(Batch(&one, 1));
      } catch (...) {
        one->fail(current_error());
      }
      if (one->error) log(node_, "Recv: " + one->error->message());
    }
  }

  std::string node_;
  std::shared_ptr<PipeContext> context_;
  Ref<Queue> queue_;
  BackendPtr body_;
  std::unique_ptr<Worker> worker_;  // last: it ends before what it uses
};

// Observer(name): `result` is what would come out of the queue next, or None. Takes nothing.
class Observer final : public Backend {
  void init_(Init& init) override { queue_ = init.context().queue(init.params().get<std::string>("name")); }
  void forward_(Batch batch) override {
    for (Request* request : batch) request->dict.set(kResult, queue_->peek().value_or(Value()));
  }
  Ref<Queue> queue_;
};

BackendClass named(const char* name, const char* doc) {
  BackendClass cls;
  cls.name = name;
  cls.doc = doc;
  cls.params = parse_param_specs("name: str = default");
  return cls;
}

}  // namespace

void register_queues(Registry& registry) {
  BackendClass queue = named("Queue", "A bounded queue of the pipe with room for `max` values: `data` goes in; `result` is `data`.");
  queue.params = parse_param_specs("name: str = default; max: int = 1024 {1..}");
  queue.create = [] { return std::make_shared<Push>(true); };
  registry.add_core(std::make_shared<BackendClass>(std::move(queue)));

  BackendClass send = named("Send", "Pushes `data` into the queue of that name, waiting for room; `result` is `data`.");
  send.create = [] { return std::make_shared<Push>(false); };
  registry.add_core(std::make_shared<BackendClass>(std::move(send)));

  BackendClass recv = named("Recv", "Runs its backend on whatever arrives in the queue of that name.");
  recv.brackets = {true, {Phase{}}};
  recv.owns_threads = true;
  recv.create = [] { return std::make_shared<Recv>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(recv)));

  BackendClass observer = named("Observer", "`result` is what would come out of the queue of that name next, or None.");
  observer.create = [] { return std::make_shared<Observer>(); };
  registry.add_core(std::make_shared<BackendClass>(std::move(observer)));
}

}  // namespace hami
