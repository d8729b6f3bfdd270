// Parker: who wakes whom.
#include "sync/parker.hpp"

#include <utility>

namespace hami {

void Parker::wake_all(std::vector<Entry>& all) noexcept {
  // From the last on: whoever is woken has been told by then whom to wake.
  for (std::size_t i = all.size() / 2; i-- > 0;) {
    Others others;
    for (std::size_t side = 0; side < others.size(); ++side)
      if (const std::size_t at = 2 * i + 1 + side; at < all.size()) others[side] = all[at];
    if (all[i].parker->delegate_wakeups(others)) continue;
    for (const Entry& other : others)
      if (other.parker) other.parker->wake();
  }
  if (!all.empty()) all[0].parker->wake();
  all.clear();
}

bool Parker::delegate_wakeups(const Others& others) noexcept {
  MutexLock lock(mutex);
  if (parked_) others_ = others;
  return parked_;
}

void Parker::leave(Others& others) noexcept {
  MutexLock lock(mutex);
  parked_ = false;
  wake_others(others);
}

void Parker::wake_others(Others& others) noexcept {
  for (std::size_t side = 0; side < others.size(); ++side) {
    if (!others_[side].parker) continue;
    others[side] = std::exchange(others_[side], {});
    others[side].parker->wake();
  }
}

}  // namespace hami
