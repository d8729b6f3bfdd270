// Call: completes each request once. Timer: expires those whose deadline passes.
#include "pipe/call.hpp"

#include <algorithm>
#include <atomic>

#include "observe/api.hpp"
#include "pipe/pipe_state.hpp"

namespace hami {

// ---- Call: completes each request once.

namespace {

// The callers that wait now. Only a single one spins before it sleeps: several would take the cores from the workers.
std::atomic<int> callers{0};
Spin caller_spin;

struct Caller {
  Caller() noexcept { ++callers; }
  ~Caller() { --callers; }
};

// Leaked intentionally: threads may use it until the process ends.
const Error& left_no_result = *new Error(ErrorCode::kNoResult, "the pipeline left no `result`");

}  // namespace

Call::Call(std::shared_ptr<PipeState> pipe, std::vector<Dict> dicts, OnComplete on_complete, Ref<WaitToken> token)
    : pipe_(std::move(pipe)),
      slots_(dicts.size()),
      calls_back_(on_complete != nullptr),
      on_complete_(std::move(on_complete)),
      token_(std::move(token)),
      remaining_(dicts.size()) {
  open_.reserve(dicts.size());
  for (std::size_t i = 0; i < dicts.size(); ++i) {
    Ref<Request> request = make_counted<Request>();
    request->dict = std::move(dicts[i]);
    request->index = i;
    slots_[i].request = std::move(request);
  }
}

const Error* Call::error(std::size_t index) const noexcept {
  const Slot& slot = slots_[index];
  return slot.error ? &*slot.error : nullptr;
}

bool Call::complete() const {
  MutexLock lock(parker_.mutex);
  return remaining_ == 0;
}

void Call::settle(Slot& slot, std::optional<Error> error) noexcept {
  slot.settled = true;
  slot.error = std::move(error);
  if (trace::active() && traced_from_ > 0) trace_end(slot);
  if (--remaining_ > 0) return;
  complete_ = true;
  if (token_) token_->complete();
}

void Call::trace_begin(Nanoseconds moment) noexcept {
  traced_from_ = moment;
  trace::Event event;
  event.kind = trace::Event::kRequestBegin;
  event.time = moment;
  for (const Slot& slot : slots_) {
    if (!trace::samples_request()) continue;
    event.request = slot.request->trace_id = trace::next_id();
    trace::record(event);
  }
}

void Call::trace_end(const Slot& slot) const noexcept {
  trace::Event event;
  event.request = slot.request->trace_id;
  if (event.request == 0) {  // it was not sampled
    if (!trace::is_slow_since(traced_from_)) return;
    event.kind = trace::Event::kRequestBegin;
    event.time = traced_from_;
    event.request = trace::next_id();
    trace::record(event);
  }
  event.kind = trace::Event::kRequestEnd;
  event.time = now();
  event.until = traced_from_;
  event.name = name_of(outcome_of(slot.error));
  trace::record(event);
}

Parker* Call::complete(Request* const* requests, std::size_t count) noexcept {
  const Ref<Call> self(this);  // the caller may drop its reference before it is notified
  bool last = false;
  bool parked = false;
  {
    MutexLock lock(parker_.mutex);
    for (std::size_t i = 0; i < count; ++i) {
      Slot& slot = slots_[requests[i]->index];
      requests[i]->sink = {};      // breaks the reference cycle
      if (slot.settled) continue;  // given up or expired before
      if (requests[i]->alive() && !requests[i]->dict.contains(kResult)) requests[i]->fail(left_no_result);
      settle(slot, requests[i]->error);
      last = remaining_ == 0;
    }
    parked = parker_.parked();
  }
  for (std::size_t i = 0; i < count; ++i) requests[i]->end_parts();
  if (!last) return nullptr;
  const bool left = parked && !on_complete_;
  completed(left ? Waking::kLeft : Waking::kHere);
  return left ? &parker_ : nullptr;
}

bool Call::give_up(const Error& error) noexcept {
  const Ref<Call> self(this);
  bool any = false;
  bool last = false;
  {
    MutexLock lock(parker_.mutex);
    for (Slot& slot : slots_) {
      if (slot.settled) continue;
      slot.request->abandon();
      settle(slot, error);
      any = true;
      last = remaining_ == 0;
    }
  }
  for (const Slot& slot : slots_) slot.request->end_parts();
  if (last) completed(Waking::kHere);
  if (any) give_up_cancelled();
  return any;
}

Nanoseconds Call::expire(Nanoseconds moment) noexcept {
  const Ref<Call> self(this);
  Nanoseconds next = kNever;
  bool last = false;
  {
    MutexLock lock(parker_.mutex);
    for (Slot& slot : slots_) {
      if (slot.settled) continue;
      if (slot.request->deadline > moment) {
        next = std::min(next, slot.request->deadline);
        continue;
      }
      slot.request->abandon();
      settle(slot, deadline_exceeded(*slot.request, moment));
      last = remaining_ == 0;
    }
  }
  for (const Slot& slot : slots_)
    if (slot.request->abandoned()) slot.request->end_parts();
  if (last) completed(Waking::kHere);
  give_up_cancelled();
  return next;
}

// No other thread uses the requests' dicts any more, and the caller may read the outcomes. Runs without the mutex: a thread
// that is woken while the mutex is held goes back to sleep at once.
void Call::completed(Waking waking) noexcept {
  if (waking == Waking::kHere) parker_.wake();
  leave_batch();
  pipe_->close_call(*this);
  if (!on_complete_) return;
  forget_deadlines();
  const OnComplete on_complete =
      std::move(on_complete_);  // its captures are destroyed now, however long this call lives
  on_complete(*this);
}

void Call::watch_deadlines() {
  for (const Slot& slot : slots_)
    if (slot.request->deadline != kNever) pipe_->timer_.add(slot.request->deadline, *this);
  if (complete()) forget_deadlines();  // the pipe was closed meanwhile
}

void Call::forget_deadlines() noexcept {
  for (const Slot& slot : slots_)
    if (slot.request->deadline != kNever) pipe_->timer_.remove(slot.request->deadline, *this);
}

void Call::wait() {
  if (complete()) return;
  const Caller caller;
  const auto spin = [&] {
    if (callers == 1) caller_spin.until([&] { return complete_.load(std::memory_order_acquire); });
  };
  while (!complete()) {
    const Nanoseconds until = next_deadline_;
    try {
      if (parker_.wait(until, [&] { return remaining_ == 0; }, spin)) return;
    } catch (...) {
      give_up(current_error());
      throw;
    }
    next_deadline_ = expire(until);
  }
}

void Call::wait_inside() {
  const bool inside = token_ && ExecutionFrame::on_this_thread();
  if (!inside && !WorkerPool::on_some_pool()) return;
  std::optional<BlockedScope> wait;
  if (inside) {
    Nanoseconds until = 0;
    for (const Slot& slot : slots_) until = std::max(until, slot.request->deadline);
    try {
      wait.emplace(Dependency{token_, until});
    } catch (const Error& cycle) {
      give_up(cycle);
      return;
    }
  }
  // All threads of the pool may wait for instances that wait for this call, so this thread runs it. A call with a deadline
  // waits for a thread instead: it must be able to leave.
  if (next_deadline_ == kNever) pipe_->help(*this);
  parker_.wait(kNever, [&] { return remaining_ == 0; }, [] {});
}

// ---- Timer: one thread that sleeps until the next deadline.

Timer::~Timer() { stop(); }

void Timer::add(Nanoseconds moment, Call& call) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  if (!worker_) {
    auto worker = std::make_unique<Worker>("hami-timer", owner_);
    worker->post([this] { loop(); });
    worker_ = std::move(worker);
  }
  const auto place = calls_.emplace(moment, &call).first;
  if (place == calls_.begin()) changed_.notify_all();  // otherwise the thread wakes in time
}

void Timer::remove(Nanoseconds moment, Call& call) noexcept {
  MutexLock lock(mutex_);
  calls_.erase({moment, &call});
}

void Timer::stop() noexcept {
  std::unique_ptr<Worker> worker;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    worker = std::move(worker_);
  }
  worker = nullptr;  // joins
}

void Timer::loop() {
  const NoWaitScope prompt;
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (calls_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Nanoseconds next = calls_.begin()->first;
    const Nanoseconds moment = now();
    if (next > moment) {
      changed_.wait_until(lock, next);
      continue;
    }
    Ref<Call> call(calls_.begin()->second);
    calls_.erase(calls_.begin());
    lock.unlock();
    call->expire(moment);
    call = {};  // possibly the last reference
    lock.lock();
  }
}

}  // namespace hami
