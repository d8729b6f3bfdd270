// The queues that a node has by itself: who consumes what arrives there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sync/queue.hpp"
#include "sync/worker.hpp"
#include "backend/init.hpp"
#include "backend/node_queue_name.hpp"

namespace hami {

// Runs its body on what arrives in a queue, on a thread of its own. Nobody waits for the awaitables: failures are logged. What
// is in the queue when the pipe closes is still run.
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
  std::unique_ptr<Worker> worker_;  // last: it ends before what it uses
};

// The pipe's queue of that name. If it is that of an instance, the instance is set to work on what arrives there.
Ref<Queue> open_queue(Init& init, const std::string& name);

// Passes a value on to a node, without waiting for what becomes of it. Throws Error if the node does not take it.
class NodeInbox {
 public:
  NodeInbox(Init& init, const std::string& node);
  void push(const Value& value, std::uint8_t priority, const std::string& sender);

 private:
  std::shared_ptr<PipeContext> context_;
  BackendPtr node_;
};

}  // namespace hami
