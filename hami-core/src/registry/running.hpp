// Which nodes the current thread works for, and so which of them wait for the requests that it makes: a node that is called
// while all its instances wait for that very call would wait for ever.
#pragma once

#include <utility>
#include <vector>

#include "registry/request.hpp"

namespace hami {

// A node that waits for a request, and those that wait for the batch in which it was made.
class Holder final : public Counted {
 public:
  Holder(const void* node, std::vector<Ref<Counted>> outer) : node_(node), outer_(std::move(outer)) {}
  bool includes(const void* node) const noexcept;

 private:
  const void* node_;
  std::vector<Ref<Counted>> outer_;  // Holders
};

// Stands on the stack of a thread that runs a batch of a node.
class Running {
 public:
  Running(const void* node, Batch batch) noexcept : node_(node), batch_(batch), outer_(innermost_) { innermost_ = this; }
  ~Running() { innermost_ = outer_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  static Running* on_this_thread() noexcept { return innermost_; }
  // Who holds a request that is made on this thread now; null: nobody.
  static Ref<Counted> holder();
  // When nobody waits any more for what the batch here is run for, so neither for what is made here; kNever: there is none.
  static Nanoseconds deadline() noexcept;

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
  const void* node_;
  Batch batch_;
  Running* outer_;
  Ref<Counted> holder_;  // made when first asked for
  static thread_local Running* innermost_;
};

// Whether an instance of the node waits for this request.
bool is_held_by(const Request& request, const void* node) noexcept;

}  // namespace hami
