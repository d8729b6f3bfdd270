// InstanceDispatcher: the way in, where a request is run at once, queued, or refused.
#include <algorithm>

#include "sync/waiting.hpp"
#include "request/execution_frame.hpp"
#include "schedule/instance_dispatcher.hpp"

namespace hami {
namespace {

// Batches on this thread that were run inline, each while the one before it is being handed on. A stack has an end.
constexpr int kMostInline = 64;
thread_local int inline_depth = 0;

struct OneDeeper {
  OneDeeper() noexcept { ++inline_depth; }
  ~OneDeeper() { --inline_depth; }
  OneDeeper(const OneDeeper&) = delete;
  OneDeeper& operator=(const OneDeeper&) = delete;
};

}  // namespace

void InstanceDispatcher::post_(Batch batch, InlinePolicy how) {
  std::vector<Request*> admitted;
  admitted.reserve(batch.size());
  stats_->submitted += batch.size();
  for (Request* request : batch) {
    if (runner_->admit(*request, limits_.max)) {
      admitted.push_back(request);
    } else {
      *request->error = request->error->with_note("node \"" + node_ + "\"");
      runner_->complete_rejected(Batch(&request, 1));
    }
  }
  if (admitted.empty()) return;
  const Batch ready(admitted);
  const std::size_t items = ready.items();
  const std::optional<Index> instance = acquire_inline(items, how);
  if (!instance) return enqueue(admitted, how);
  const OneDeeper deeper;
  ++stats_->inline_batches;
  const Nanoseconds took = run(*instance, ready);
  finish_inline(*instance, items, took);
  complete_requests(ready);
}

// An instance for the caller's own thread: only if nothing waits, one is idle whose class allows it, and the thread is not
// too deep in others.
std::optional<InstanceDispatcher::Index> InstanceDispatcher::acquire_inline(std::size_t items, InlinePolicy how) {
  if ((how != InlinePolicy::kAllow && !non_blocking_) || inline_depth >= kMostInline) return std::nullopt;
  MutexLock lock(mutex_);
  return scheduler_->acquire_inline(items);
}

// Fails each request for which a backend would wait for ever; the others of them are seen as waiting here from now on.
void InstanceDispatcher::reject_deadlocks(const std::vector<Request*>& requests) {
  for (Request* request : requests) {
    if (!dependency_of(*request).token) continue;
    const WaitGraphLock still;
    try {
      bool must_wait = false;
      {
        MutexLock lock(mutex_);
        must_wait = scheduler_->begin_arrival(*request);
      }
      if (must_wait) still.check_deadlock(*request, *this);
    } catch (...) {
      request->fail(current_error());
      MutexLock lock(mutex_);
      scheduler_->end_arrival(*request);
    }
  }
}

void InstanceDispatcher::enqueue(const std::vector<Request*>& requests, InlinePolicy how) {
  reject_deadlocks(requests);
  std::vector<Request*> refused;
  std::vector<Index> woken;
  Requests removed;
  {
    MutexLock lock(mutex_);
    const std::uint64_t call = ++calls_;
    const Nanoseconds arrived = now();
    std::size_t items = 0;
    std::optional<Error> interrupted;  // once the user wants the thread back, nothing of this call waits any more
    for (Request* request : requests) {
      if (!request->alive()) {
        refused.push_back(request);
        continue;
      }
      try {
        if (interrupted) throw Error(*interrupted);
        if (how != InlinePolicy::kEventLoop || reject_when_full_ || scheduler_->stopping())
          wait_for_capacity(lock, request->deadline, woken, removed, interrupted);
        scheduler_->push(Ref<Request>(request), arrived, call);
        items += request->items;
      } catch (...) {
        request->fail(current_error());
        refused.push_back(request);
      }
      scheduler_->end_arrival(*request);
    }
    notify_batch_ready();
    for (std::size_t hands = scheduler_->instances_for(items); hands > 0; --hands)
      if (const std::optional<Index> next = scheduler_->dispatch_idle()) woken.push_back(*next);
  }
  wake(woken);
  complete_removed(removed);
  runner_->complete_rejected(Batch(refused));
}

// Returns when one more request may be queued; throws why it may not. Lets the lock go while it waits. `summoned` are to be
// woken, those it adds too.
void InstanceDispatcher::wait_for_capacity(MutexLock& lock, Nanoseconds until, std::vector<Index>& summoned,
                                   Requests& removed, std::optional<Error>& interrupted) {
  const auto full = [&] { return !scheduler_->stopping() && scheduler_->full(); };
  if (full()) {
    const std::size_t before = removed.size();
    scheduler_->remove_expired(now(), removed);
    for (std::size_t freed = removed.size() - before; freed > 1; --freed) capacity_available_.notify_one();  // one is for this request
  }
  while (full() && reject_when_full_) {
    const std::optional<Index> next = scheduler_->dispatch_idle();  // makes room
    if (!next)
      throw Error(ErrorCode::kQueueFull, "node \"" + node_ + "\" has " + std::to_string(max_queue_size_) +
                                             " requests waiting (max_queue_size = " + std::to_string(max_queue_size_) + ")");
    summoned.push_back(*next);
  }
  while (full()) {
    const Nanoseconds moment = now();
    if (moment >= until) {
      capacity_available_.notify_one();
      throw Error(ErrorCode::kDeadlineExceeded,
                  "the request's time ran out before node \"" + node_ + "\" had room for it");
    }
    // What is in the queue must be on its way before anyone waits for room.
    notify_batch_ready();
    while (const std::optional<Index> next = scheduler_->dispatch_idle()) summoned.push_back(*next);
    lock.unlock();  // the global lock of a language is never taken while this one is held
    wake(summoned);
    summoned.clear();
    complete_removed(removed);
    {
      BlockingScope blocking;
      MutexLock inner(mutex_);
      capacity_available_.wait_until(inner, to_time_point(std::min(until, moment + kInterruptPoll)), [&] { return !full(); });
    }
    try {
      check_interrupt();
    } catch (...) {
      interrupted = current_error();
      store_interrupt(*interrupted);
    }
    lock.lock();
    if (interrupted) {
      capacity_available_.notify_one();
      throw Error(*interrupted);
    }
  }
  if (scheduler_->stopping()) throw Error(ErrorCode::kPipeClosed, "the pipe is closed");
}

}  // namespace hami
