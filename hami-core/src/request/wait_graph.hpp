// Calls inside calls: which threads wait inside which nodes for what, and the circles that nobody would ever leave.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "request/request.hpp"

namespace hami {

class Running;

// What a thread inside a node waits for: the outcomes of all requests that carry it (Request::held_by).
class Ask final : public Counted {
 public:
  enum class Leaves {
    kEarly,  // who waits leaves when the time of a request is up, or when it is cancelled
    kDone,   // who waits has lent the requests, and needs them back
  };
  explicit Ask(Leaves leaves) noexcept : leaves_(leaves) {}

  Leaves leaves() const noexcept { return leaves_; }
  // Who waits need not wait any longer.
  void answered() noexcept { open_.store(false, std::memory_order_relaxed); }
  bool open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  const Leaves leaves_;
  std::atomic<bool> open_{true};
};

// That an ask cannot end before a request is done, or before its time is up.
struct Need {
  Ref<Ask> ask;  // null: nobody is known to wait for the request
  Nanoseconds until = kNever;
};
// For who owns the request, or has the lock of the queue that it is in.
Need need_of(const Request& request) noexcept;

// Stands on the stack of a thread that goes on only when what it asked for is done. Outside of all nodes it does nothing.
class Wait {
 public:
  // For requests that will carry `ask()` and are not on their way yet: no instance comes back from here before them.
  explicit Wait(Ask::Leaves leaves);
  // For requests on their way. Throws Error(kReentrantCall) if this wait would close a circle that stands until their time
  // is up.
  explicit Wait(Need need);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  const Ref<Ask>& ask() const noexcept { return ask_; }  // null: outside of all nodes
  const Running* inside() const noexcept { return inside_; }

 private:
  Ref<Ask> ask_;
  Running* const inside_;
};

// Where requests wait for one of several instances.
class Place {
 public:
  virtual const std::string& place_name() const noexcept = 0;
  // Adds what needs, until `moment` at least, those requests here that are not run while the `lost` instances are away.
  virtual void add_stuck(const std::vector<std::size_t>& lost, Nanoseconds moment, std::vector<const Ask*>& stuck) = 0;

 protected:
  ~Place() = default;
};

// While it lives, no wait begins or ends, so that what is seen of several places fits together.
class WaitsStandStill {
 public:
  WaitsStandStill();
  // For a request that has arrived at a place and waits there. Throws Error(kReentrantCall) if it has closed a circle that
  // stands until its time is up.
  void check_circle(const Request& arrived, const Place& at) const;

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace hami
