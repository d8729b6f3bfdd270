// What a thread works for: the nodes whose batches it runs, and the calls that it makes for them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "request/request.hpp"
#include "request/wait_graph.hpp"

namespace hami {

// ExecutionFrame: which nodes the current thread works for. A request that it makes blocks the instances of those nodes.
// On the stack of a thread while it runs a batch of a node, and while it completes one: the instance is not available until
// the thread returns.
class ExecutionFrame {
 public:
  // Of a request that the thread has to complete.
  struct HeldDependency : Dependency {
    const Request* request;
  };

  ExecutionFrame(WaitLocation& location, std::size_t instance, Batch batch) noexcept
      : location_(location), instance_(instance), batch_(batch), outer_(innermost_) {
    innermost_ = this;
  }
  ~ExecutionFrame() {
    if (has_calls_) end_calls();
    innermost_ = outer_;
  }
  ExecutionFrame(const ExecutionFrame&) = delete;
  ExecutionFrame& operator=(const ExecutionFrame&) = delete;

  static ExecutionFrame* on_this_thread() noexcept { return innermost_; }
  static bool inside(const WaitLocation& location) noexcept { return inside(location, innermost_); }
  static bool inside(const WaitLocation& location, const ExecutionFrame* innermost) noexcept {
    for (const ExecutionFrame* frame = innermost; frame; frame = frame->outer_)
      if (&frame->location_ == &location) return true;
    return false;
  }
  // The latest deadline of the innermost batch that runs: after it, no caller waits for the batch or for requests that it makes.
  // kNever: no batch, or no deadline.
  static Nanoseconds deadline() noexcept;

  // The highest priority of that batch, which a request that it makes has too; 0: no batch.
  static std::uint8_t priority() noexcept;

  // Whether it is about a batch, and whether all requests of that are cancelled.
  bool runs() const noexcept { return !batch_.empty(); }
  bool is_cancelled() const noexcept;
  void set_has_calls() noexcept { has_calls_ = true; }

  WaitLocation& location() const noexcept { return location_; }
  std::size_t instance() const noexcept { return instance_; }
  const ExecutionFrame* outer() const noexcept { return outer_; }
  // The waits that depend on this batch. Known after record_dependencies, which this thread calls before it passes the batch on.
  const std::vector<HeldDependency>& dependencies() const noexcept { return dependencies_; }
  void record_dependencies();
  // From now on the thread completes the batch: the waits for its requests depend on the thread, which no longer owns them.
  void begin_completion() noexcept;
  // This thread has completed these requests or passed them on: no wait depends on its frames for them any more. They may not
  // exist any more.
  static void passed_on(Batch batch) noexcept;

 private:
  friend class AdoptFrame;

  void end_calls() noexcept;

  WaitLocation& location_;
  const std::size_t instance_;
  Batch batch_;
  ExecutionFrame* const outer_;
  bool recorded_ = false;
  bool has_calls_ = false;                    // or had some (NestedCall)
  bool completes_ = false;                    // the batch runs no more, and is being completed
  std::vector<HeldDependency> dependencies_;  // in the order of the batch
  static thread_local ExecutionFrame* innermost_;
};

// Makes the current thread work for the nodes of `caller`, whose thread waits for this one.
class AdoptFrame {
 public:
  explicit AdoptFrame(ExecutionFrame* caller) noexcept : own_(std::exchange(ExecutionFrame::innermost_, caller)) {}
  ~AdoptFrame() { ExecutionFrame::innermost_ = own_; }
  AdoptFrame(const AdoptFrame&) = delete;
  AdoptFrame& operator=(const AdoptFrame&) = delete;

 private:
  ExecutionFrame* own_;
};

// NestedCall: a call that a backend makes for a batch. It ends when every request of the batch is cancelled.
class NestedCall : public CompletionSink {
 public:
  // Completes every open request with this error. False: all were complete.
  virtual bool give_up(const Error& error) noexcept = 0;

  // After requests were abandoned: gives up the calls of batches that have none left.
  static void give_up_cancelled() noexcept;

 protected:
  // Makes this a call of the innermost batch of the thread, until `leave_batch` or the end of the batch. False: the batch is cancelled.
  bool join_batch() noexcept;
  void leave_batch() noexcept;

 private:
  bool joined_ = false;  // by the thread that starts the call, before that
};

}  // namespace hami
