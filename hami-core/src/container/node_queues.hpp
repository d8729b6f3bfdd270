// The queues of a node: consumers of their values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/init.hpp"
#include "backend/node_queue_name.hpp"
#include "sync/queue.hpp"
#include "sync/worker.hpp"

namespace hami {

// Runs its body on the values of a queue, on a dedicated thread. No caller waits for the results; errors are logged. Values
// that are queued when the pipe closes still run.
class Consumer : public Backend, public Service, public std::enable_shared_from_this<Consumer> {
 public:
  ~Consumer() override;
  void stop() noexcept override;
  bool owns_this_thread() noexcept override;
  bool join(Nanoseconds until) noexcept override;

  void consume(Init& init, Ref<Queue> queue, BackendPtr body);

 private:
  void forward_(Batch batch) override;
  void run();

  std::string node_;
  std::shared_ptr<PipeContext> context_;
  Ref<Queue> queue_;
  BackendPtr body_;
  std::unique_ptr<Worker> worker_;  // last: it ends before the members that it uses
};

// The pipe's queue of that name. If it is the queue of an instance, the instance consumes it.
Ref<Queue> open_queue(Init& init, const std::string& name);

// Passes values to a node without waiting for results. Throws Error if the node does not accept one.
class NodeInbox {
 public:
  NodeInbox(Init& init, const std::string& node);
  void push(const Value& value, std::uint8_t priority, const std::string& sender);

 private:
  std::shared_ptr<PipeContext> context_;
  BackendPtr node_;
};

}  // namespace hami
