// RequestQueue: which requests form a batch, and which leave without one.
#include "schedule/request_queue.hpp"

#include <utility>

namespace hami {
namespace {

// Fails a request that expired or was abandoned; true if it did.
bool fail_if_expired(Request& request, Nanoseconds moment) noexcept {
  const bool late = request.deadline <= moment;
  if (!late && !request.abandoned()) return false;
  request.fail(late ? deadline_exceeded(request, moment) : Error::cancelled());
  return true;
}

}  // namespace

void RequestQueue::push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept {
  items_ += request->items;
  request->queued_at = moment;
  request->call = call;
  queue_.push(std::move(request));
}

RequestQueue::Cut RequestQueue::cut(std::size_t max_items, bool one_call) const noexcept {
  Cut cut;
  for (const Request* next = queue_.first(); next; next = RequestChain::after(*next)) {
    if (cut.count > 0 && cut.items + next->items > max_items) break;
    if (cut.count > 0 && one_call && next->call != queue_.first()->call) break;
    cut.items += next->items;
    ++cut.count;
  }
  return cut;
}

std::size_t RequestQueue::items_of_first_call() const noexcept {
  std::size_t items = 0;
  for (const Request* next = queue_.first(); next && next->call == queue_.first()->call;
       next = RequestChain::after(*next))
    items += next->items;
  return items;
}

void RequestQueue::take(const Cut& cut, RequestChain& taken) noexcept {
  for (std::size_t i = 0; i < cut.count; ++i) taken.push(queue_.pop());
  items_ -= cut.items;
}

RequestChain RequestQueue::take_all() noexcept {
  items_ = 0;
  return std::move(queue_);
}

void RequestQueue::remove_expired(Nanoseconds moment, RequestChain& removed, std::size_t items) noexcept {
  using Verdict = RequestChain::Verdict;
  queue_.move_to(removed, [&, live = std::size_t{0}](Request& request) mutable {
    if (live >= items) return Verdict::kStop;
    if (fail_if_expired(request, moment)) {
      items_ -= request.items;
      return Verdict::kTake;
    }
    live += request.items;
    return Verdict::kKeep;
  });
}

}  // namespace hami
