// Worker: a thread for work that would hold a thread of connections for too long.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "queue.hpp"

namespace hami_serve {

class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(std::unique_ptr<Task> work) noexcept;  // in order, one after the other; it does not throw
  void stop();                                    // leaves out what has not begun, and what is added later

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  Queue<Task> waiting_;
  bool stopping_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace hami_serve
