// Fails requests whose time is up while nobody waits for them on a thread.
#pragma once

#include <memory>
#include <set>
#include <utility>

#include "sync/worker.hpp"
#include "pipe/call.hpp"
#include "base/mutex.hpp"

namespace hami {

class Timer {
 public:
  ~Timer();
  void add(Nanoseconds moment, Call& call);  // starts the thread if it is the first
  void remove(Nanoseconds moment, Call& call) noexcept;
  void stop() noexcept;
  bool owns_this_thread() noexcept;

 private:
  void loop();

  Mutex mutex_;
  CondVar changed_;
  // Open calls, once for each of their deadlines, until they are complete: a call removes itself before it can go.
  std::set<std::pair<Nanoseconds, Call*>> calls_ HAMI_GUARDED_BY(mutex_);
  bool stopping_ HAMI_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Worker> worker_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
