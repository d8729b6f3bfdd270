// Sleeper: who wakes whom.
#include "sync/parker.hpp"

#include <utility>

namespace hami {

void Sleeper::wake_all(std::vector<Held>& all) noexcept {
  // From the last on: whoever is woken has been told by then whom to wake.
  for (std::size_t i = all.size() / 2; i-- > 0;) {
    Others others;
    for (std::size_t side = 0; side < others.size(); ++side)
      if (const std::size_t at = 2 * i + 1 + side; at < all.size()) others[side] = all[at];
    if (all[i].sleeper->leave_to_it(others)) continue;
    for (const Held& other : others)
      if (other.sleeper) other.sleeper->wake();
  }
  if (!all.empty()) all[0].sleeper->wake();
  all.clear();
}

bool Sleeper::leave_to_it(const Others& others) noexcept {
  std::lock_guard lock(mutex);
  if (asleep_) others_ = others;
  return asleep_;
}

void Sleeper::leave(Others& others) noexcept {
  std::lock_guard lock(mutex);
  asleep_ = false;
  wake_others(others);
}

void Sleeper::wake_others(Others& others) noexcept {
  for (std::size_t side = 0; side < others.size(); ++side) {
    if (!others_[side].sleeper) continue;
    others[side] = std::exchange(others_[side], {});
    others[side].sleeper->wake();
  }
}

}  // namespace hami
