// Lane: the lists and the search tree.
#include "schedule/lane.hpp"

#include <utility>

#include "base/assert.hpp"

namespace hami {

void Lane::insert(Ref<Request> request) noexcept {
  if (!last_ || !overtakes(*request, *last_)) return append(std::move(request));
  Request& inserted = *request.detach();
  link_arrival(inserted);
  index_all();
  Request *parent = nullptr, *next = nullptr;
  bool left = false;
  for (Request* at = root_; at; at = left ? at->links_.left : at->links_.right) {
    parent = at;
    left = overtakes(inserted, *at);
    if (left) next = at;
  }
  HAMI_ASSERT(next);
  link_before(inserted, next);
  place(inserted, parent, left);
}

void Lane::append(Ref<Request> request) noexcept {
  Request& appended = *request.detach();
  link_arrival(appended);
  link_before(appended, nullptr);
  if (!first_appended_) first_appended_ = &appended;
}

Ref<Request> Lane::remove(Request& request) noexcept {
  LaneLinks& links = request.links_;
  if (links.weight > 0) leave_tree(request);
  if (first_appended_ == &request) first_appended_ = links.after;
  (links.before ? links.before->links_.after : first_) = links.after;
  (links.after ? links.after->links_.before : last_) = links.before;
  (links.older ? links.older->links_.younger : oldest_) = links.younger;
  (links.younger ? links.younger->links_.older : youngest_) = links.older;
  links = LaneLinks();
  --size_;
  items_ -= request.items;
  bytes_ -= request.bytes;
  return Ref<Request>::adopt(&request);
}

void Lane::link_arrival(Request& request) noexcept {
  request.links_.older = youngest_;
  (youngest_ ? youngest_->links_.younger : oldest_) = &request;
  youngest_ = &request;
  ++size_;
  items_ += request.items;
  bytes_ += request.bytes;
}

// `next`: null at the end.
void Lane::link_before(Request& request, Request* next) noexcept {
  Request* const before = next ? next->links_.before : last_;
  request.links_.before = before;
  request.links_.after = next;
  (before ? before->links_.after : first_) = &request;
  (next ? next->links_.before : last_) = &request;
}

// The last request of a tree has no right child.
void Lane::index_all() noexcept {
  for (Request* request = std::exchange(first_appended_, nullptr); request; request = request->links_.after)
    place(*request, request->links_.before, false);
}

// Adds a leaf below `parent`, and restores the heap.
void Lane::place(Request& request, Request* parent, bool left) noexcept {
  random_ ^= random_ << 13U;  // xorshift: never 0
  random_ ^= random_ >> 17U;
  random_ ^= random_ << 5U;
  request.links_.weight = random_;
  request.links_.parent = parent;
  (!parent ? root_ : left ? parent->links_.left : parent->links_.right) = &request;
  while (request.links_.parent && request.links_.parent->links_.weight < request.links_.weight) rotate_up(request);
}

void Lane::rotate_up(Request& request) noexcept {
  Request* const parent = request.links_.parent;
  Request* const above = parent->links_.parent;
  const bool left = parent->links_.left == &request;
  Request*& inner = left ? request.links_.right : request.links_.left;
  (left ? parent->links_.left : parent->links_.right) = inner;
  if (inner) inner->links_.parent = parent;
  inner = parent;
  parent->links_.parent = &request;
  request.links_.parent = above;
  (!above ? root_ : above->links_.left == parent ? above->links_.left : above->links_.right) = &request;
}

// Moves the request down to a leaf, and cuts it off.
void Lane::leave_tree(Request& request) noexcept {
  const LaneLinks& links = request.links_;
  while (links.left || links.right) {
    const bool left = links.left && (!links.right || links.left->links_.weight > links.right->links_.weight);
    rotate_up(left ? *links.left : *links.right);
  }
  Request* const parent = links.parent;
  (!parent ? root_ : parent->links_.left == &request ? parent->links_.left : parent->links_.right) = nullptr;
}

void Lane::swap(Lane& other) noexcept {
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(oldest_, other.oldest_);
  std::swap(youngest_, other.youngest_);
  std::swap(root_, other.root_);
  std::swap(first_appended_, other.first_appended_);
  std::swap(size_, other.size_);
  std::swap(items_, other.items_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace hami
