// The event loops that a thread wakes at the end of its completion batch.
#include "completion_batch.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace hami::bind {

struct PendingWakeups {
  const HoldGil gil;
  std::vector<py::object> queues;  // each once
  PendingWakeups* outer;
};
static_assert(sizeof(PendingWakeups) <= sizeof(CompletionStorage));

namespace {

thread_local PendingWakeups* pending_wakeups = nullptr;  // of the innermost completion batch

void wake(const py::object& completion_queue) { call_python(completion_queue.attr("wake")); }

void flush_wakeups() noexcept {
  if (!pending_wakeups) return;
  std::vector<py::object> queues;
  queues.swap(pending_wakeups->queues);
  constexpr Nanoseconds kOnOtherThread = 1'000'000'000;
  for (const py::object& queue : queues)
    if (!complete_reliably("hami: waking an event loop", memory_timeout(kOnOtherThread), [&] { wake(queue); })) {
      PyErr_NoMemory();
      PyErr_WriteUnraisable(queue.ptr());
    }
}

}  // namespace

void begin_completion_batch(CompletionStorage& storage) noexcept {
  pending_wakeups = new (&storage) PendingWakeups{{}, {}, pending_wakeups};
}

void end_completion_batch([[maybe_unused]] CompletionStorage& storage) noexcept {
  HAMI_ASSERT(static_cast<void*>(&storage) == pending_wakeups);
  flush_wakeups();
  PendingWakeups* const ended = std::exchange(pending_wakeups, pending_wakeups->outer);
  ended->~PendingWakeups();  // releases the GIL
}

Nanoseconds memory_timeout(Nanoseconds otherwise) noexcept {
  constexpr Nanoseconds kOnCoreThread = 60'000'000'000;
  return Worker::on_some_worker() ? kOnCoreThread : otherwise;
}

bool complete_reliably(const char* what, Nanoseconds timeout, void (*complete)(void*), void* data) noexcept {
  constexpr auto kMemoryPoll = std::chrono::milliseconds(5);
  std::optional<py::error_already_set> interruption;
  const Nanoseconds until = after(timeout);
  for (;;) {
    try {
      complete(data);
      break;
    } catch (py::error_already_set& raised) {
      // Before 3.12, CPython reports no memory for the frame of a call by a SystemError.
      if (!raised.matches(PyExc_MemoryError) && !raised.matches(PyExc_SystemError)) {
        if (!interruption) {
          interruption = raised;
          continue;
        }
        raised.discard_as_unraisable(what);
        interruption->discard_as_unraisable(what);
        return true;
      }
    } catch (...) {        // no memory: it is tried again
      is_out_of_memory();  // no other exception of C++ is expected here
    }
    if (now() >= until) return false;
    const ReleaseGil released;
    std::this_thread::sleep_for(kMemoryPoll);
  }
  if (interruption && !raise_later(*interruption)) interruption->discard_as_unraisable(what);
  return true;
}

void wake_after_batch(py::handle completion_queue) {
  HAMI_ASSERT(has_gil());
  const py::object queue = py::reinterpret_borrow<py::object>(completion_queue);
  if (!pending_wakeups) return wake(queue);
  std::vector<py::object>& queues = pending_wakeups->queues;
  const auto is_queue = [&](const py::object& each) { return each.is(queue); };
  if (std::any_of(queues.begin(), queues.end(), is_queue)) return;
  try {
    queues.push_back(queue);
  } catch (const std::bad_alloc&) {
    wake(queue);
  }
}

FlushWakeupsScope::FlushWakeupsScope() noexcept {
  flush_wakeups();
  suspended_ = std::exchange(pending_wakeups, nullptr);
}

FlushWakeupsScope::~FlushWakeupsScope() { pending_wakeups = suspended_; }

}  // namespace hami::bind
