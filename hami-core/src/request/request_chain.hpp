// RequestChain and RequestList: two ways to own several requests.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "request/request.hpp"

namespace hami {

// First in, first out. The links are in the requests, so that it never allocates. A request is in at most one chain.
class RequestChain {
 public:
  RequestChain() noexcept = default;
  RequestChain(RequestChain&& other) noexcept { swap(other); }
  RequestChain& operator=(RequestChain&& other) noexcept {
    RequestChain(std::move(other)).swap(*this);
    return *this;
  }
  ~RequestChain() { clear(); }

  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  Request* first() const noexcept { return first_; }
  static Request* after(const Request& request) noexcept { return request.next_; }

  void push(Ref<Request> request) noexcept;
  Ref<Request> pop() noexcept;  // null: it is empty
  void append(RequestChain&& other) noexcept;
  void clear() noexcept {
    while (pop()) {
    }
  }

  enum class Verdict { kKeep, kTake, kStop };
  // Judges the requests in order, until `judge` says kStop. Moves those that it takes to the end of `to`.
  template <class Judge>
  void move_to(RequestChain& to, Judge judge) {
    Request* before = nullptr;
    for (Request* request = first_; request;) {
      const Verdict verdict = judge(*request);
      if (verdict == Verdict::kStop) return;
      Request* const after = request->next_;
      if (verdict == Verdict::kTake)
        to.push(unlink(before, *request));
      else
        before = request;
      request = after;
    }
  }

 private:
  Ref<Request> unlink(Request* before, Request& request) noexcept;
  void swap(RequestChain& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(last_, other.last_);
    std::swap(size_, other.size_);
  }

  Request* first_ = nullptr;
  Request* last_ = nullptr;
  std::size_t size_ = 0;
};

// One array, which `batch` lends.
class RequestList {
 public:
  RequestList() noexcept = default;
  ~RequestList() { clear(); }
  RequestList(const RequestList&) = delete;
  RequestList& operator=(const RequestList&) = delete;

  void reserve(std::size_t count) { requests_.reserve(count); }
  void push(Ref<Request> request) noexcept;  // into reserved memory
  // Takes all requests of the chain. False: out of memory, and the chain keeps them.
  bool take(RequestChain& chain) noexcept;
  Batch batch() const noexcept { return Batch(requests_); }
  void clear() noexcept;

 private:
  std::vector<Request*> requests_;
};

// Passes all requests to `use` as one batch; one by one, if the batch cannot be allocated.
template <class Use>
void use_all(RequestChain& chain, const Use& use) {
  if (chain.empty()) return;
  RequestList all;
  if (all.take(chain)) return use(all.batch());
  while (const Ref<Request> request = chain.pop()) {
    Request* one = request.get();
    use(Batch(&one, 1));
  }
}

}  // namespace hami
