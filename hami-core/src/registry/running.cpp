// Running, Holder: who waits for what is made here.
#include "registry/running.hpp"

#include <algorithm>

namespace hami {

thread_local Running* Running::innermost_ = nullptr;

bool Holder::includes(const void* node) const noexcept {
  if (node_ == node) return true;
  for (const Ref<Counted>& outer : outer_)
    if (static_cast<const Holder&>(*outer).includes(node)) return true;
  return false;
}

Ref<Counted> Running::holder() {
  Running* here = innermost_;
  if (!here) return {};
  if (!here->holder_) {
    std::vector<Ref<Counted>> outer;
    const auto add = [&](const Ref<Counted>& one) {  // once: what one call made is held by one, however much it is
      if (one && (outer.empty() || outer.back().get() != one.get())) outer.push_back(one);
    };
    for (const Request* request : here->batch_)
      for (; request; request = request->parent.get()) add(request->held_by);
    if (here->outer_) {
      const Adopted outside(here->outer_);
      add(holder());
    }
    here->holder_ = Ref<Counted>(make_counted<Holder>(here->node_, std::move(outer)).get());
  }
  return here->holder_;
}

Nanoseconds Running::deadline() noexcept {
  if (!innermost_) return kNever;
  Nanoseconds last = 0;
  for (const Request* request : innermost_->batch_) last = std::max(last, request->deadline);
  return last;
}

bool is_held_by(const Request& request, const void* node) noexcept {
  for (const Request* one = &request; one; one = one->parent.get())
    if (one->held_by && static_cast<const Holder&>(*one->held_by).includes(node)) return true;
  return false;
}

}  // namespace hami
