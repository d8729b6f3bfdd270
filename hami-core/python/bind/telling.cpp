// The event loops that a thread has to wake when it has told its outcomes.
#include "telling.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace hami::bind {
namespace {

struct Teller {
  int depth = 0;  // a callback may run a pipe, whose outcomes are told inside
  std::optional<HoldGil> gil;
  std::vector<py::object> asleep;
};
thread_local Teller teller;

void wake(const py::object& outcomes) noexcept {
  try {
    outcomes.attr("wake")();
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: waking an event loop");
  }
}

}  // namespace

void begin_telling() noexcept {
  if (teller.depth++ == 0) teller.gil.emplace();
}

void end_telling() noexcept {
  wake_now();
  if (--teller.depth == 0) teller.gil.reset();
}

void wake_later(py::handle outcomes) {
  const py::object held = py::reinterpret_borrow<py::object>(outcomes);
  if (teller.depth == 0) return wake(held);
  std::vector<py::object>& asleep = teller.asleep;
  const auto is_held = [&](const py::object& each) { return each.is(held); };
  if (std::none_of(asleep.begin(), asleep.end(), is_held)) asleep.push_back(held);
}

void wake_now() noexcept {
  std::vector<py::object> asleep;
  asleep.swap(teller.asleep);
  for (const py::object& outcomes : asleep) wake(outcomes);
}

}  // namespace hami::bind
