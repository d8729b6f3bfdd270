// The wait graph: which threads wait inside which nodes for which requests. It detects deadlock cycles of nested calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "request/request.hpp"

namespace hami {

class ExecutionFrame;
class WaitLocation;

// What a thread inside a node waits for: the completion of all requests that carry this token (Request::wait_token).
class WaitToken final : public Counted {
 public:
  enum class Release {
    kEarly,      // the waiting thread leaves at a request's deadline, or when it is cancelled
    kCompleted,  // the waiting thread has lent the requests and needs them back
  };
  explicit WaitToken(Release release) noexcept : release_(release) {}

  Release release_rule() const noexcept { return release_; }
  // The wait may end.
  void complete() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  const Release release_;
  std::atomic<bool> open_{true};
};

// Dependency: the wait for `token` cannot end until the request completes or `until` passes.
struct Dependency {
  Ref<WaitToken> token;  // null: no known thread waits for the request
  Nanoseconds until = kNever;
};
// The caller owns the request, or holds the lock of its queue.
Dependency dependency_of(const Request& request) noexcept;

// On the stack of a thread while it waits for requests. Has no effect on threads outside of all nodes.
class BlockedScope {
 public:
  // For requests that will carry `token()` and have not started: they complete before this thread's instances are available.
  explicit BlockedScope(WaitToken::Release release);
  // For requests that have started. Throws Error(kReentrantCall) if this wait would complete a deadlock cycle that lasts until
  // their deadline.
  explicit BlockedScope(Dependency dependency);
  // For a thread that waits until the queue of `full` has capacity, at most until `until`. If this wait completes a deadlock
  // cycle that lasts until then, a wait for capacity is refused: if `gives_way`, this one; else one that gives way, if the cycle
  // contains such a wait; else this one. Throws Error(kReentrantCall) if it is this one.
  BlockedScope(WaitLocation& full, Nanoseconds until, bool gives_way);
  ~BlockedScope() { end(); }
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

  const Ref<WaitToken>& token() const noexcept { return token_; }  // null: outside of all nodes, or a wait for capacity
  const ExecutionFrame* inside() const noexcept { return inside_; }
  WaitLocation* full() const noexcept { return full_; }  // where it waits for capacity; null: it waits for requests
  // Of a wait for capacity:
  Nanoseconds until() const noexcept { return until_; }
  bool gives_way() const noexcept { return gives_way_; }
  // Another thread has refused it, so it ends now.
  bool refused() const noexcept { return refused_.load(std::memory_order_acquire); }
  // Ends the wait. Throws Error(kReentrantCall) if it was refused.
  void leave();

 private:
  friend class CapacityWaits;

  void end() noexcept;

  Ref<WaitToken> token_;
  ExecutionFrame* const inside_;
  WaitLocation* const full_ = nullptr;
  const Nanoseconds until_ = kNever;
  const bool gives_way_ = false;
  bool ended_ = false;
  std::optional<Error> refusal_;  // written before refused_ is set, read after
  std::atomic<bool> refused_{false};
};

// A place where requests wait for one of several instances: a node.
class WaitLocation {
 public:
  // The waits that cannot end, at least until some moment, while some instances do not return.
  struct Blocked {
    std::vector<const WaitToken*> tokens;  // for requests here that cannot run, or that depend on such requests
    bool capacity = false;                 // for capacity: the queue is full and does not move
  };

  virtual const std::string& location_name() const noexcept = 0;
  // The name of its pipe: the same object for all locations of one pipe.
  virtual const std::string& pipe_name() const noexcept = 0;
  // The waits that are blocked, at least until `moment`, while the `unavailable` instances do not return.
  virtual Blocked blocked(const std::vector<std::size_t>& unavailable, Nanoseconds moment) = 0;
  // Wakes the threads that wait for capacity: one of them was refused.
  virtual void wake_capacity_waits() noexcept = 0;

 protected:
  ~WaitLocation() = default;
};

// While it exists, no wait starts or ends, so that the state of several locations is consistent.
class WaitGraphLock {
 public:
  WaitGraphLock();
  // For a request that has arrived at `at` and waits there. Throws Error(kReentrantCall) if it completed a deadlock cycle that
  // lasts until its deadline.
  void check_deadlock(const Request& arrived, const WaitLocation& at) const;
  // The queue of this node became full again while threads wait for its capacity: refuses a wait of each deadlock cycle that
  // this completed.
  void check_full(const WaitLocation& at) const;

 private:
  MutexLock lock_;
};

}  // namespace hami
