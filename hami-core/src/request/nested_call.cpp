// NestedCall: the calls of the batches that run.
#include "request/nested_call.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "request/execution_frame.hpp"

namespace hami {
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
