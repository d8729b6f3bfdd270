// Timer: expires requests for which no thread waits.
#pragma once

#include <memory>
#include <set>
#include <utility>

#include "base/mutex.hpp"
#include "pipe/call.hpp"
#include "sync/worker.hpp"

namespace hami {

class Timer {
 public:
  // `owner`: for whom the thread works (WorkScope).
  explicit Timer(const void* owner) noexcept : owner_(owner) {}
  ~Timer();
  void add(Nanoseconds moment, Call& call);  // starts the thread on first use
  void remove(Nanoseconds moment, Call& call) noexcept;
  void stop() noexcept;

 private:
  void loop();

  const void* const owner_;
  Mutex mutex_;
  CondVar changed_;
  // Open calls, once for each deadline. A call removes itself when it is complete, before it can be destroyed.
  std::set<std::pair<Nanoseconds, Call*>> calls_ HAMI_GUARDED_BY(mutex_);
  bool stopping_ HAMI_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Worker> worker_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
