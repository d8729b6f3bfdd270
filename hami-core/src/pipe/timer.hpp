// Fails requests whose time is up while nobody waits for them on a thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "base/worker.hpp"
#include "pipe/call.hpp"

namespace hami {

class Timer {
 public:
  ~Timer();
  void add(Nanoseconds moment, Ref<Call> call);  // starts the thread if it is the first
  void stop() noexcept;

 private:
  void loop();

  std::mutex mutex_;  // guards calls_, stopping_, worker_
  std::condition_variable changed_;
  std::multimap<Nanoseconds, Ref<Call>> calls_;
  bool stopping_ = false;
  std::unique_ptr<Worker> worker_;
};

}  // namespace hami
