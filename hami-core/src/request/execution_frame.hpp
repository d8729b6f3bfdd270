// Which nodes the current thread works for, and so which of them wait for the requests that it makes.
#pragma once

#include <utility>
#include <vector>

#include "request/wait_graph.hpp"

namespace hami {

// Stands on the stack of a thread that runs a batch of a node, or that tells what became of one while its instance waits
// for it to come back: then the batch is empty.
class ExecutionFrame {
 public:
  ExecutionFrame(WaitLocation& place, std::size_t instance, Batch batch) noexcept
      : location_(place), instance_(instance), batch_(batch), outer_(innermost_) {
    innermost_ = this;
  }
  ~ExecutionFrame() { innermost_ = outer_; }
  ExecutionFrame(const ExecutionFrame&) = delete;
  ExecutionFrame& operator=(const ExecutionFrame&) = delete;

  static ExecutionFrame* on_this_thread() noexcept { return innermost_; }
  static bool inside(const WaitLocation& place) noexcept { return inside(place, innermost_); }
  static bool inside(const WaitLocation& place, const ExecutionFrame* innermost) noexcept {
    for (const ExecutionFrame* frame = innermost; frame; frame = frame->outer_)
      if (&frame->location_ == &place) return true;
    return false;
  }
  // When nobody waits any more for what the batch here is run for, so neither for what is made here; kNever: there is none.
  static Nanoseconds deadline() noexcept;

  WaitLocation& location() const noexcept { return location_; }
  std::size_t instance() const noexcept { return instance_; }
  const ExecutionFrame* outer() const noexcept { return outer_; }
  // Who waits for this batch; known once it was noted, on this thread and before the batch was passed on.
  const std::vector<Dependency>& dependencies() const noexcept { return dependencies_; }
  void record_dependencies();

  // A thread on which the one that runs `caller` waits: it works for the same nodes.
  class AdoptFrame {
   public:
    explicit AdoptFrame(ExecutionFrame* caller) noexcept : own_(std::exchange(innermost_, caller)) {}
    ~AdoptFrame() { innermost_ = own_; }
    AdoptFrame(const AdoptFrame&) = delete;
    AdoptFrame& operator=(const AdoptFrame&) = delete;

   private:
    ExecutionFrame* own_;
  };

 private:
  WaitLocation& location_;
  const std::size_t instance_;
  Batch batch_;
  ExecutionFrame* const outer_;
  bool noted_ = false;
  std::vector<Dependency> dependencies_;
  static thread_local ExecutionFrame* innermost_;
};

}  // namespace hami
