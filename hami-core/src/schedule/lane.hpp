// Lane: requests that wait, ordered by number (the larger first), then deadline (the earlier first), then arrival. Pure data: no
// locks and no clock. It never allocates: the links are in the requests.
//
// All requests are in two lists, by order and by arrival. A request that belongs at the end is appended, in constant time. Only
// when one belongs further ahead, those appended so far enter a search tree (a treap: a binary tree by order, and a heap by
// random weights, so that it stays balanced); then it finds its place in O(log n). The tree has a front part of the lane.
#pragma once

#include <cstddef>
#include <cstdint>

#include "request/request.hpp"

namespace hami {

class Lane {
 public:
  Lane() noexcept = default;
  Lane(Lane&& other) noexcept { swap(other); }
  Lane& operator=(Lane&& other) noexcept {
    Lane(std::move(other)).swap(*this);
    return *this;
  }
  ~Lane() {
    while (first_) remove(*first_);
  }

  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  std::size_t items() const noexcept { return items_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Request* first() const noexcept { return first_; }
  Request* last() const noexcept { return last_; }
  Request* oldest() const noexcept { return oldest_; }
  static Request* before(const Request& request) noexcept { return request.links_.before; }
  static Request* after(const Request& request) noexcept { return request.links_.after; }
  // Whether `one` is served before `other`, which arrived earlier.
  static bool overtakes(const Request& one, const Request& other) noexcept {
    return one.priority != other.priority ? one.priority > other.priority : one.deadline < other.deadline;
  }

  void insert(Ref<Request> request) noexcept;
  // At the end, out of order or not. A lane with such requests must not `insert` others.
  void append(Ref<Request> request) noexcept;
  Ref<Request> remove(Request& request) noexcept;

 private:
  void link_arrival(Request& request) noexcept;
  void link_before(Request& request, Request* next) noexcept;
  void index_all() noexcept;
  void place(Request& request, Request* parent, bool left) noexcept;
  void rotate_up(Request& request) noexcept;
  void leave_tree(Request& request) noexcept;
  void swap(Lane& other) noexcept;

  Request* first_ = nullptr;
  Request* last_ = nullptr;
  Request* oldest_ = nullptr;
  Request* youngest_ = nullptr;
  Request* root_ = nullptr;
  Request* first_appended_ = nullptr;  // the first that is not in the tree
  std::size_t size_ = 0;
  std::size_t items_ = 0;
  std::size_t bytes_ = 0;
  std::uint32_t random_ = 1;
};

}  // namespace hami
