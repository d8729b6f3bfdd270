// A thread that runs what it is given, in order. The only place where the core starts threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"

namespace hami {

class Worker {
 public:
  // `name` is what debuggers show (15 bytes of it).
  explicit Worker(std::string name);
  ~Worker();  // as stop(kNever)
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Hands a job over; jobs must not throw.
  void post(std::function<void()> job);
  // Runs a job and waits for it; what it throws is thrown here as an Error. On the worker's own thread it runs at once.
  void run(const std::function<void()>& job);
  bool is_current() const noexcept;
  // True on the thread of any worker: nothing that joins workers may run there.
  static bool on_some_worker() noexcept;

  // Finishes what was posted and joins. False: the thread did not come back in time and is abandoned; whatever its
  // job still uses must be kept alive by the job itself.
  bool stop(Nanoseconds until);
  bool stopped() const noexcept { return state_ == nullptr; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hami
