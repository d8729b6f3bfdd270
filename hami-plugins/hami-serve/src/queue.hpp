// Queue: elements that are linked to each other, so that adding one needs no memory and never fails.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace hami_serve {

// First in, first out. `T` has a member `std::unique_ptr<T> next`, which the queue uses.
template <class T>
class Queue {
 public:
  Queue() = default;
  ~Queue() { clear(); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  bool empty() const noexcept { return !first_; }
  std::size_t size() const noexcept { return size_; }

  void push(std::unique_ptr<T> element) noexcept {
    T* const added = element.get();
    (first_ ? last_->next : first_) = std::move(element);
    last_ = added;
    ++size_;
  }

  std::unique_ptr<T> pop() noexcept {  // null: it is empty
    std::unique_ptr<T> element = std::move(first_);
    if (!element) return nullptr;
    first_ = std::move(element->next);
    --size_;
    return element;
  }

  template <class Step>
  void for_each(Step&& step) const {
    for (const T* each = first_.get(); each; each = each->next.get()) step(*each);
  }

  void clear() noexcept {
    while (pop()) {  // not as a chain of destructors
    }
  }

  void swap(Queue& other) noexcept {
    first_.swap(other.first_);
    std::swap(last_, other.last_);
    std::swap(size_, other.size_);
  }

 private:
  std::unique_ptr<T> first_;
  T* last_ = nullptr;  // if there is a first one
  std::size_t size_ = 0;
};

// Work for another thread.
struct Task {
  Task() = default;
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual void run() = 0;

  std::unique_ptr<Task> next;
};

// Throws std::bad_alloc; passing the task on does not.
template <class Function>
std::unique_ptr<Task> task_of(Function function) {
  struct Made final : Task {
    explicit Made(Function given) : function_(std::move(given)) {}
    void run() override { function_(); }
    Function function_;
  };
  return std::make_unique<Made>(std::move(function));
}

}  // namespace hami_serve
