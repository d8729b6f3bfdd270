// RequestQueue: the requests that wait for a node, in the order in which they are taken. Pure data: no locks and no clock. It
// never allocates: the links are in the requests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "request/request_chain.hpp"

namespace hami {

class RequestQueue {
 public:
  // Requests from the front of the queue that form a batch.
  struct Cut {
    std::size_t count = 0;
    std::size_t items = 0;
  };

  bool empty() const noexcept { return queue_.empty(); }
  std::size_t size() const noexcept { return queue_.size(); }  // in requests
  std::size_t items() const noexcept { return items_; }
  const Request* first() const noexcept { return queue_.first(); }  // null: it is empty
  // In the order in which they are taken.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Request* request = queue_.first(); request; request = RequestChain::after(*request)) visit(*request);
  }

  // Requests of one call have the same `call`.
  void push(Ref<Request> request, Nanoseconds moment, std::uint64_t call) noexcept;
  // What a batch of at most `max_items` takes: always the first request, if there is one. `one_call`: only requests of its call.
  Cut cut(std::size_t max_items, bool one_call) const noexcept;
  // Items at the front that belong to the call of the first request.
  std::size_t items_of_first_call() const noexcept;
  void take(const Cut& cut, RequestChain& taken) noexcept;
  RequestChain take_all() noexcept;
  // Removes and fails requests that expired or were abandoned: all, or as many as are in front of the first `items` live items.
  void remove_expired(Nanoseconds moment, RequestChain& removed, std::size_t items = SIZE_MAX) noexcept;

 private:
  RequestChain queue_;
  std::size_t items_ = 0;
};

}  // namespace hami
