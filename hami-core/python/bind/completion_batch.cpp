// The event loops that a thread has to wake when it has told its outcomes.
#include "completion_batch.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace hami::bind {

struct Teller {
  const HoldGil gil;
  std::vector<py::object> asleep;
  Teller* outer;
};

namespace {

thread_local Teller* innermost = nullptr;

void wake(const py::object& outcomes) noexcept {
  complete_reliably("hami: waking an event loop", [&] { call_python(outcomes.attr("wake")); });
}

void wake_now() noexcept {
  if (!innermost) return;
  std::vector<py::object> asleep;
  asleep.swap(innermost->asleep);
  for (const py::object& outcomes : asleep) wake(outcomes);
}

}  // namespace

void* begin_completion_batch() noexcept { return innermost = new Teller{{}, {}, innermost}; }

void end_completion_batch(void* token) noexcept {
  wake_now();
  innermost = innermost->outer;
  delete static_cast<Teller*>(token);
}

void wake_after_batch(py::handle outcomes) {
  const py::object held = py::reinterpret_borrow<py::object>(outcomes);
  if (!innermost) return wake(held);
  std::vector<py::object>& asleep = innermost->asleep;
  const auto is_held = [&](const py::object& each) { return each.is(held); };
  if (std::none_of(asleep.begin(), asleep.end(), is_held)) asleep.push_back(held);
}

FlushWakeupsScope::FlushWakeupsScope() noexcept {
  wake_now();
  interrupted_ = std::exchange(innermost, nullptr);
}

FlushWakeupsScope::~FlushWakeupsScope() { innermost = interrupted_; }

}  // namespace hami::bind
