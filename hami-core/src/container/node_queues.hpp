// QueueConsumer and NodeSender: the two ends of queues whose values become requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/init.hpp"
#include "backend/node_queue_name.hpp"
#include "sync/queue.hpp"
#include "sync/worker.hpp"

namespace hami {

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

// The queue of the pipe with this name, created on first use. The queue of an instance gets a consumer that runs the instance.
Ref<Queue> open_queue(Init& init, const std::string& name);

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

}  // namespace hami
