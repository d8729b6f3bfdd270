// The event loops that a thread wakes at the end of its completion batch.
#include "completion_batch.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace hami::bind {

struct PendingWakeups {
  const HoldGil gil;
  std::vector<py::object> queues;  // each once
  PendingWakeups* outer;
};

namespace {

thread_local PendingWakeups* pending_wakeups = nullptr;  // of the innermost completion batch

void wake(const py::object& completion_queue) noexcept {
  complete_reliably("hami: waking an event loop", [&] { call_python(completion_queue.attr("wake")); });
}

void flush_wakeups() noexcept {
  if (!pending_wakeups) return;
  std::vector<py::object> queues;
  queues.swap(pending_wakeups->queues);
  for (const py::object& queue : queues) wake(queue);
}

}  // namespace

void* begin_completion_batch() noexcept { return pending_wakeups = new PendingWakeups{{}, {}, pending_wakeups}; }

void end_completion_batch(void* token) noexcept {
  HAMI_ASSERT(token == pending_wakeups);
  flush_wakeups();
  pending_wakeups = pending_wakeups->outer;
  delete static_cast<PendingWakeups*>(token);
}

void wake_after_batch(py::handle completion_queue) {
  HAMI_ASSERT(has_gil());
  const py::object queue = py::reinterpret_borrow<py::object>(completion_queue);
  if (!pending_wakeups) return wake(queue);
  std::vector<py::object>& queues = pending_wakeups->queues;
  const auto is_queue = [&](const py::object& each) { return each.is(queue); };
  if (std::none_of(queues.begin(), queues.end(), is_queue)) queues.push_back(queue);
}

FlushWakeupsScope::FlushWakeupsScope() noexcept {
  flush_wakeups();
  suspended_ = std::exchange(pending_wakeups, nullptr);
}

FlushWakeupsScope::~FlushWakeupsScope() { pending_wakeups = suspended_; }

}  // namespace hami::bind
