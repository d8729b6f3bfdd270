// RequestChain and RequestList: links and references.
#include "request/request_chain.hpp"

#include <new>

#include "sync/api.hpp"

namespace hami {

void RequestChain::push(Ref<Request> request) noexcept {
  Request* const pushed = request.detach();
  HAMI_ASSERT(!pushed->next_ && pushed != last_);
  (last_ ? last_->next_ : first_) = pushed;
  last_ = pushed;
  ++size_;
}

Ref<Request> RequestChain::unlink(Request* before, Request& request) noexcept {
  (before ? before->next_ : first_) = request.next_;
  if (last_ == &request) last_ = before;
  request.next_ = nullptr;
  --size_;
  return Ref<Request>::adopt(&request);
}

Ref<Request> RequestChain::pop() noexcept { return first_ ? unlink(nullptr, *first_) : Ref<Request>(); }

void RequestChain::append(RequestChain&& other) noexcept {
  if (other.empty()) return;
  (last_ ? last_->next_ : first_) = other.first_;
  last_ = other.last_;
  size_ += other.size_;
  other.first_ = other.last_ = nullptr;
  other.size_ = 0;
}

void RequestList::push(Ref<Request> request) noexcept {
  HAMI_ASSERT(requests_.size() < requests_.capacity());
  requests_.push_back(request.detach());
}

bool RequestList::take(RequestChain& chain) noexcept {
  try {
    reserve(requests_.size() + chain.size());
  } catch (const std::bad_alloc&) {
    return false;
  }
  while (Ref<Request> request = chain.pop()) push(std::move(request));
  return true;
}

void RequestList::clear() noexcept {
  for (Request* request : requests_) request->release();
  requests_.clear();
}

}  // namespace hami
