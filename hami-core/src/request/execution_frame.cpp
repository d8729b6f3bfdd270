// What a thread works for: dependencies, deadlines and calls of the batches that it runs.
#include "request/execution_frame.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "sync/api.hpp"

namespace hami {

// ---- ExecutionFrame: dependencies and deadlines of the batches that a thread runs.

thread_local ExecutionFrame* ExecutionFrame::innermost_ = nullptr;

// Records those of the outer frames first: a wait that starts here blocks each of them.
void ExecutionFrame::record_dependencies() {
  if (recorded_) return;
  if (outer_) outer_->record_dependencies();
  std::vector<HeldDependency> known;
  for (const Request* request : batch_)
    if (Dependency dependency = dependency_of(*request); dependency.token)
      known.push_back({std::move(dependency), request});
  dependencies_ = std::move(known);
  recorded_ = true;
}

void ExecutionFrame::begin_completion() noexcept {
  try {
    record_dependencies();
  } catch (const std::bad_alloc&) {  // a deadlock cycle through this thread may not be detected
  }
  batch_ = Batch(nullptr, 0);
  completes_ = true;
}

// A request whose batch still runs comes back: it was only lent.
void ExecutionFrame::passed_on(Batch batch) noexcept {
  for (ExecutionFrame* frame = innermost_; frame; frame = frame->outer_) {
    if (!frame->completes_ || frame->dependencies_.empty()) continue;
    const auto first = frame->dependencies_.begin();
    auto held = first;
    for (const Request* request : batch)
      if (held != frame->dependencies_.end() && held->request == request) ++held;
    if (held != first) frame->dependencies_.erase(first, held);
  }
}

Nanoseconds ExecutionFrame::deadline() noexcept {
  if (!innermost_ || innermost_->batch_.empty()) return kNever;
  Nanoseconds last = 0;
  for (const Request* request : innermost_->batch_) last = std::max(last, request->deadline);
  return last;
}

bool ExecutionFrame::is_cancelled() const noexcept {
  return std::all_of(batch_.begin(), batch_.end(), [](const Request* request) { return request->cancelled(); });
}

std::uint8_t ExecutionFrame::priority() noexcept {
  std::uint8_t highest = 0;
  if (innermost_)
    for (const Request* request : innermost_->batch_) highest = std::max(highest, request->priority);
  return highest;
}

// ---- NestedCall: the calls of the batches that run.

namespace {

struct NestedCalls {
  struct Entry {
    const ExecutionFrame* batch;
    NestedCall* call;
  };
  Mutex mutex;
  std::vector<Entry> all HAMI_GUARDED_BY(mutex);
  std::atomic<bool> any{false};

  template <class Which>
  void remove(Which which) noexcept {
    MutexLock lock(mutex);
    all.erase(std::remove_if(all.begin(), all.end(), which), all.end());
    any = !all.empty();
  }
};

PerProcess<NestedCalls> nested_calls;
thread_local bool gives_up = false;

}  // namespace

bool NestedCall::join_batch() noexcept {
  ExecutionFrame* const batch = ExecutionFrame::on_this_thread();
  if (!batch || !batch->runs()) return true;
  try {
    NestedCalls& calls = nested_calls.get();
    MutexLock lock(calls.mutex);
    calls.all.push_back({batch, this});
    calls.any = joined_ = true;
  } catch (const std::bad_alloc&) {  // it does not notice the cancellation
    return true;
  }
  batch->set_has_calls();
  return !batch->is_cancelled();
}

void NestedCall::leave_batch() noexcept {
  if (!joined_) return;
  if (NestedCalls* const calls = nested_calls.find())
    calls->remove([this](const NestedCalls::Entry& entry) { return entry.call == this; });
}

// A call is in the list only while its pipe keeps it alive. Each is given up without the mutex: that may run callbacks.
void NestedCall::give_up_cancelled() noexcept {
  NestedCalls* const calls = nested_calls.find();
  if (!calls || !calls->any || gives_up) return;  // the outer loop finds those of the inner one
  const auto next = [&]() -> Ref<NestedCall> {
    MutexLock lock(calls->mutex);
    const auto cancelled = std::find_if(calls->all.begin(), calls->all.end(),
                                        [](const NestedCalls::Entry& entry) { return entry.batch->is_cancelled(); });
    if (cancelled == calls->all.end()) return {};
    const Ref<NestedCall> call(cancelled->call);
    calls->all.erase(cancelled);
    return call;
  };
  gives_up = true;
  while (const Ref<NestedCall> call = next()) call->give_up(Error::cancelled());
  gives_up = false;
}

void ExecutionFrame::end_calls() noexcept {
  if (NestedCalls* const calls = nested_calls.find())
    calls->remove([this](const NestedCalls::Entry& entry) { return entry.batch == this; });
}

}  // namespace hami
