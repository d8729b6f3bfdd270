// InstanceDispatcher: admission: a request runs inline, is queued, or is rejected.

#include <algorithm>
#include <new>
#include <utility>

#include "request/api.hpp"
#include "schedule/instance_dispatcher.hpp"

namespace hami {
namespace {

// Inline batches in each other on this thread, limited so that the stack cannot overflow.
constexpr int kMaxInlineDepth = 64;
thread_local int inline_depth = 0;

struct InlineDepth {
  InlineDepth() noexcept { ++inline_depth; }
  ~InlineDepth() { --inline_depth; }
  InlineDepth(const InlineDepth&) = delete;
  InlineDepth& operator=(const InlineDepth&) = delete;
};

}  // namespace

void InstanceDispatcher::post_(Batch batch, InlinePolicy how) {
  std::vector<Request*> admitted;
  admitted.reserve(batch.size());
  runner_->count(batch, &RequestStats::submitted);
  runner_->record_arrival(batch);
  for (Request* request : batch) {
    if (admit(*request))
      admitted.push_back(request);
    else
      runner_->complete_rejected(Batch(&request, 1));
  }
  if (runner_->has_costs()) set_costs(admitted);
  if (admitted.empty()) return;
  const Batch ready(admitted);
  const std::size_t items = ready.items();
  const std::optional<Index> instance = acquire_inline(ready, how);
  if (!instance) return enqueue(admitted, how);
  const InlineDepth depth;
  const Nanoseconds took = run(*instance, ready, {stats_->inline_batches, BatchRunner::StartReason::kInline});
  finish_inline(*instance, items, took);
  complete_requests(ready);
}

// False: it has failed. Nothing throws once a request of the batch is completed: `post` would complete it once more.
bool InstanceDispatcher::admit(Request& request) noexcept {
  if (!runner_->admit(request, limits_.max, why_one_)) return false;
  if (memory_limit_ == 0) return true;
  try {
    request.bytes = byte_size(request.dict);
  } catch (...) {  // a container that cannot be read
    request.fail(current_error().with_note(runner_->note()));
  }
  return request.alive();
}

// Requests without a valid cost are completed and leave the vector.
void InstanceDispatcher::set_costs(std::vector<Request*>& requests) noexcept {
  runner_->set_costs(Batch(requests));
  const auto is_rejected = [&](Request* request) {
    if (request->alive()) return false;
    runner_->complete_rejected(Batch(&request, 1));
    return true;
  };
  requests.erase(std::remove_if(requests.begin(), requests.end(), is_rejected), requests.end());
}

// An instance for the caller's own thread: only if the queue is empty, an idle instance allows it, and the thread does not run
// too many inline batches.
std::optional<InstanceDispatcher::Index> InstanceDispatcher::acquire_inline(Batch batch, InlinePolicy how) {
  if ((how != InlinePolicy::kAllow && !non_blocking_) || inline_depth >= kMaxInlineDepth) return std::nullopt;
  LaneName first = kNormalLane, last = kUrgentLane;
  for (const Request* request : batch) {
    first = std::min(first, lane_of(request->priority));
    last = std::max(last, lane_of(request->priority));
  }
  MutexLock lock(mutex_);
  if (scheduler_->config().by_deadline)  // those that cannot end in time are refused by `enqueue`
    for (const Request* request : batch)
      if (request->deadline != kNever && scheduler_->earliest_end(*request, now()) > request->deadline)
        return std::nullopt;
  return scheduler_->acquire_inline(batch.items(), first, last, scheduler_->needs_moment() ? now() : 0);
}

// Fails each request whose wait would complete a deadlock cycle. The others count as queued here from now on.
void InstanceDispatcher::reject_deadlocks(const std::vector<Request*>& requests) noexcept {
  for (Request* request : requests) {
    if (!dependency_of(*request).token) continue;
    try {
      const WaitGraphLock still;
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

// From here on nothing throws: `post` would complete requests that are queued once more.
void InstanceDispatcher::enqueue(const std::vector<Request*>& requests, InlinePolicy how) noexcept {
  reject_deadlocks(requests);
  Arrival arrival;
  bool others_wait = false;
  {
    MutexLock lock(mutex_);
    const std::uint64_t call = ++calls_;
    const Nanoseconds arrived = now();
    std::size_t items = 0;
    for (Request* request : requests) {
      if (!request->alive()) {
        arrival.refused.push(Ref<Request>(request));
        continue;
      }
      if (!scheduler_->admits(*request, arrived)) {
        refuse_unreachable(*request, arrived);
        arrival.unreachable.push(Ref<Request>(request));
        scheduler_->end_arrival(*request);
        continue;
      }
      if (scheduler_->fail_if_late(*request, arrived)) {
        arrival.refused.push(Ref<Request>(request));
        scheduler_->end_arrival(*request);
        continue;
      }
      try {
        if (arrival.interrupted) throw Error(*arrival.interrupted);
        if (memory_limit_ > 0) check_memory(*request, arrival.removed);
        if (how != InlinePolicy::kEventLoop || on_full_ != OnFull::kBlock || scheduler_->stopping())
          wait_for_capacity(*request, arrival);
        scheduler_->push(Ref<Request>(request), arrived, call, std::exchange(items, items + request->items));
      } catch (...) {
        request->fail(current_error());
        arrival.refused.push(Ref<Request>(request));
      }
      scheduler_->end_arrival(*request);
    }
    notify_batch_ready();
    for (std::size_t workers = scheduler_->instances_for(items); workers > 0; --workers)
      dispatch_idle(arrival.dispatched);
    if (memory_limit_ > 0) stats_->queued_bytes = scheduler_->queue().bytes();
    others_wait = waits_inside_ > 0 && scheduler_->full();
  }
  if (others_wait) refuse_deadlocks();
  wake(arrival.dispatched);
  runner_->complete_rejected(arrival.removed);
  runner_->complete_rejected(arrival.refused);
  runner_->complete_unreachable(arrival.unreachable);
}

// Requests that expired, were abandoned or cannot end in time leave the queue.
void InstanceDispatcher::remove_expired(RequestChain& removed) noexcept {
  RequestChain expired;
  scheduler_->remove_late(now(), expired);
  notify_capacity(expired);
  removed.append(std::move(expired));
}

void InstanceDispatcher::check_memory(const Request& request, RequestChain& removed) {
  const auto fits = [&] {
    mutex_.assert_held();
    return request.bytes <= memory_limit_ - std::min(scheduler_->queue().bytes(), memory_limit_);
  };
  if (fits()) return;
  if (request.bytes > memory_limit_)
    throw Error(ErrorCode::kQueueFull,
                "this request has " + show_bytes(request.bytes) + ", more than the memory_limit of node \"" + node_ +
                    "\", " + show_bytes(memory_limit_) + ": send less in one request, or raise memory_limit");
  remove_expired(removed);
  if (fits()) return;
  const std::size_t queued = scheduler_->queue().bytes();
  throw Error(ErrorCode::kQueueFull, "node \"" + node_ + "\" has requests with " + show_bytes(queued) +
                                         " queued, and this one has " + show_bytes(request.bytes) +
                                         "; its memory_limit is " + show_bytes(memory_limit_) +
                                         ": wait for outstanding requests, or raise memory_limit");
}

// The requests that were just queued may have completed a deadlock cycle of threads that wait for capacity.
void InstanceDispatcher::refuse_deadlocks() noexcept {
  try {
    const WaitGraphLock still;
    still.check_full(*this);
  } catch (const std::bad_alloc&) {  // those that wait check again after kInterruptPoll
  }
}

void InstanceDispatcher::wake_capacity_waits() noexcept {
  MutexLock lock(mutex_);
  notify_all_capacity();
}

bool InstanceDispatcher::dispatch_idle(Dispatched& dispatched) noexcept {
  const std::optional<Index> next = scheduler_->dispatch_idle();
  if (!next) return false;
  const std::optional<Index> last = std::exchange(dispatched.last, next);
  (last ? instances_[*last]->next_dispatched : dispatched.first) = next;
  return true;
}

void InstanceDispatcher::refuse_unreachable(Request& request, Nanoseconds moment) noexcept {
  const Nanoseconds least = scheduler_->earliest_end(request, moment) - moment;
  request.fail(error_from([&] {
    return Error(ErrorCode::kDeadlineExceeded,
                 "node \"" + node_ + "\" cannot end this request in time: it takes at least " + shown(least) +
                     ", and " + shown(std::max<Nanoseconds>(0, request.deadline - moment)) +
                     " are left (admission = \"deadline\")");
  }));
}

void InstanceDispatcher::drop_oldest(LaneName lane, RequestChain& removed) noexcept {
  Ref<Request> oldest = scheduler_->queue().remove_oldest(lane);
  oldest->fail(error_from([&] {
    return Error(ErrorCode::kQueueFull,
                 "node \"" + node_ + "\" dropped this request, the oldest of " + std::to_string(max_queue_size_) +
                     " in its queue, for a newer one (" +
                     "on_full = \"drop_oldest\", max_queue_size = " + std::to_string(max_queue_size_) + ")");
  }));
  ++stats_->dropped;
  removed.push(std::move(oldest));
}

// Returns when the request may be queued; throws if it may not. Releases the mutex while it waits.
void InstanceDispatcher::wait_for_capacity(const Request& request, Arrival& arrival) {
  const LaneName lane = lane_of(request.priority);
  if (is_full(lane)) remove_expired(arrival.removed);
  while (is_full(lane) && on_full_ != OnFull::kBlock) {
    if (dispatch_idle(arrival.dispatched)) continue;  // it will take requests from the queue
    if (on_full_ == OnFull::kDropOldest)
      drop_oldest(lane, arrival.removed);
    else
      throw Error(ErrorCode::kQueueFull, "node \"" + node_ + "\" has " + std::to_string(max_queue_size_) +
                                             (lane == kNormalLane ? "" : std::string(" ") + kLaneNames[lane]) +
                                             " requests queued (max_queue_size = " + std::to_string(max_queue_size_) +
                                             ")");
  }
  const bool is_inside = ExecutionFrame::on_this_thread() != nullptr;
  if (is_inside && is_full(lane)) scheduler_->config().auto_instances = false;
  while (is_full(lane)) {
    if (NoWaitScope::active())
      throw Error(ErrorCode::kReentrantCall,
                  "node \"" + node_ +
                      "\" has a full queue, and a callback after a timeout must not wait for capacity: "
                      "other timeouts would be late; submit from a thread of your own, or raise max_queue_size");
    const Nanoseconds moment = now();
    if (moment >= request.deadline) {
      capacity_available_[lane].notify_one();
      throw Error(ErrorCode::kDeadlineExceeded,
                  deadline_exceeded(request, moment).message() + "; the queue of node \"" + node_ + "\" was full");
    }
    // All work must be dispatched before this thread waits for capacity.
    notify_batch_ready();
    while (dispatch_idle(arrival.dispatched)) {
    }
    waits_inside_ += is_inside;
    mutex_.unlock();  // the GIL is never acquired while a core lock is held
    WaitOutcome outcome = wait_unlocked(request, moment, arrival);
    mutex_.lock();  // for the caller, whose scope holds it; wait_unlocked does not throw
    waits_inside_ -= is_inside;
    if (outcome.interrupted) arrival.interrupted = outcome.refused;
    if (outcome.refused) {
      capacity_available_[lane].notify_one();
      throw Error(*outcome.refused);
    }
    if (is_full(lane)) remove_expired(arrival.removed);
  }
  if (scheduler_->stopping()) throw Error::pipe_closed();
}

bool InstanceDispatcher::is_full(LaneName lane) const noexcept {
  return !scheduler_->stopping() && scheduler_->full(lane);
}

// One wait, after which the state has to be looked at again. Of the threads in a deadlock cycle, one that submits inside a backend
// or callback gives way first.
InstanceDispatcher::WaitOutcome InstanceDispatcher::wait_unlocked(const Request& request, Nanoseconds moment,
                                                                  Arrival& arrival) {
  wake(arrival.dispatched);
  runner_->complete_rejected(arrival.removed);
  const LaneName lane = lane_of(request.priority);
  WaitOutcome outcome;
  try {
    BlockedScope wait(*this, request.deadline, static_cast<bool>(dependency_of(request).token));
    {
      BlockingScope blocking;
      MutexLock lock(mutex_);
      capacity_available_[lane].wait_until(lock, std::min(request.deadline, moment + kInterruptPoll), [&] {
        mutex_.assert_held();
        return !is_full(lane) || wait.refused();
      });
    }
    wait.leave();
  } catch (...) {
    outcome.refused = current_error();
  }
  try {
    check_interrupt();
  } catch (...) {
    outcome = {current_error(), true};
    store_interrupt(*outcome.refused);
  }
  return outcome;
}

}  // namespace hami
