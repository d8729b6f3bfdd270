// Parker: delegated wake-ups.
#include "sync/waiting.hpp"

#include <utility>

namespace hami {

void Parker::wake_all(std::vector<Entry>& entries) noexcept {
  // From the last parent to the first: every thread has its own entries before it can be woken.
  for (std::size_t i = entries.size() / 2; i-- > 0;) {
    Delegated children;
    for (std::size_t side = 0; side < children.size(); ++side)
      if (const std::size_t child = 2 * i + 1 + side; child < entries.size()) children[side] = entries[child];
    if (entries[i].parker->delegate_wakeups(children)) continue;
    for (const Entry& child : children)
      if (child.parker) child.parker->wake();
  }
  if (!entries.empty()) entries[0].parker->wake();
  entries.clear();
}

bool Parker::delegate_wakeups(const Delegated& entries) noexcept {
  MutexLock lock(mutex);
  if (parked_) delegated_ = entries;
  return parked_;
}

void Parker::leave(Delegated& woken) noexcept {
  MutexLock lock(mutex);
  parked_ = false;
  wake_delegated(woken);
}

void Parker::wake_delegated(Delegated& woken) noexcept {
  for (std::size_t side = 0; side < woken.size(); ++side) {
    if (!delegated_[side].parker) continue;
    woken[side] = std::exchange(delegated_[side], {});
    woken[side].parker->wake();
  }
}

}  // namespace hami
