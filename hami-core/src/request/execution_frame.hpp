// Which nodes the current thread works for, and so which of them wait for the requests that it makes.
#pragma once

#include <utility>
#include <vector>

#include "request/wait_graph.hpp"

namespace hami {

// Stands on the stack of a thread that runs a batch of a node, or that tells what became of one while its instance waits
// for it to come back: then the batch is empty.
class Running {
 public:
  Running(Place& place, std::size_t instance, Batch batch) noexcept
      : place_(place), instance_(instance), batch_(batch), outer_(innermost_) {
    innermost_ = this;
  }
  ~Running() { innermost_ = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  static Running* on_this_thread() noexcept { return innermost_; }
  static bool inside(const Place& place) noexcept { return inside(place, innermost_); }
  static bool inside(const Place& place, const Running* innermost) noexcept {
    for (const Running* frame = innermost; frame; frame = frame->outer_)
      if (&frame->place_ == &place) return true;
    return false;
  }
  // When nobody waits any more for what the batch here is run for, so neither for what is made here; kNever: there is none.
  static Nanoseconds deadline() noexcept;

  Place& place() const noexcept { return place_; }
  std::size_t instance() const noexcept { return instance_; }
  const Running* outer() const noexcept { return outer_; }
  // Who waits for this batch; known once it was noted, on this thread and before the batch was passed on.
  const std::vector<Need>& needs() const noexcept { return needs_; }
  void note_needs();

  // A thread on which the one that runs `caller` waits: it works for the same nodes.
  class Adopted {
   public:
    explicit Adopted(Running* caller) noexcept : own_(std::exchange(innermost_, caller)) {}
    ~Adopted() { innermost_ = own_; }
    Adopted(const Adopted&) = delete;
    Adopted& operator=(const Adopted&) = delete;

   private:
    Running* own_;
  };

 private:
  Place& place_;
  const std::size_t instance_;
  Batch batch_;
  Running* const outer_;
  bool noted_ = false;
  std::vector<Need> needs_;
  static thread_local Running* innermost_;
};

}  // namespace hami
