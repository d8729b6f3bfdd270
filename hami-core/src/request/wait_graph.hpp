// Calls inside calls: which threads wait inside which nodes for what, and the circles that nobody would ever leave.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "request/request.hpp"

namespace hami {

class ExecutionFrame;

// What a thread inside a node waits for: the outcomes of all requests that carry it (Request::wait_token).
class WaitToken final : public Counted {
 public:
  enum class Release {
    kEarly,  // who waits leaves when the time of a request is up, or when it is cancelled
    kCompleted,   // who waits has lent the requests, and needs them back
  };
  explicit WaitToken(Release leaves) noexcept : release_(leaves) {}

  Release release() const noexcept { return release_; }
  // Who waits need not wait any longer.
  void complete() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  const Release release_;
  std::atomic<bool> open_{true};
};

// That an ask cannot end before a request is done, or before its time is up.
struct Dependency {
  Ref<WaitToken> token;  // null: nobody is known to wait for the request
  Nanoseconds until = kNever;
};
// For who owns the request, or has the lock of the queue that it is in.
Dependency dependency_of(const Request& request) noexcept;

// Stands on the stack of a thread that goes on only when what it asked for is done. Outside of all nodes it does nothing.
class BlockedScope {
 public:
  // For requests that will carry `ask()` and are not on their way yet: no instance comes back from here before them.
  explicit BlockedScope(WaitToken::Release leaves);
  // For requests on their way. Throws Error(kReentrantCall) if this wait would close a circle that stands until their time
  // is up.
  explicit BlockedScope(Dependency dependency);
  ~BlockedScope();
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

  const Ref<WaitToken>& token() const noexcept { return token_; }  // null: outside of all nodes
  const ExecutionFrame* inside() const noexcept { return inside_; }

 private:
  Ref<WaitToken> token_;
  ExecutionFrame* const inside_;
};

// Where requests wait for one of several instances.
class WaitLocation {
 public:
  virtual const std::string& location_name() const noexcept = 0;
  // Adds what needs, until `moment` at least, those requests here that are not run while the `lost` instances are away.
  virtual void add_blocked(const std::vector<std::size_t>& unavailable, Nanoseconds moment, std::vector<const WaitToken*>& blocked) = 0;

 protected:
  ~WaitLocation() = default;
};

// While it lives, no wait begins or ends, so that what is seen of several places fits together.
class WaitGraphLock {
 public:
  WaitGraphLock();
  // For a request that has arrived at a place and waits there. Throws Error(kReentrantCall) if it has closed a circle that
  // stands until its time is up.
  void check_deadlock(const Request& arrived, const WaitLocation& at) const;

 private:
  MutexLock lock_;
};

}  // namespace hami
