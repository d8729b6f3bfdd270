// Counted and Ref: intrusive reference counting for objects that move between threads, such as requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace hami {

class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  void retain() const noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() const noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 protected:
  virtual ~Counted() = default;

 private:
  mutable std::atomic<std::uint32_t> references_{0};
};

template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  Ref(T* object) noexcept : object_(object) {
    if (object_) object_->retain();
  }
  // Takes ownership of the caller's reference.
  static Ref adopt(T* object) noexcept {
    Ref made;
    made.object_ = object;
    return made;
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    static_assert(std::is_void_v<decltype(std::declval<const T&>().release())>, "T hides Counted::release()");
    if (object_) object_->release();
  }

  T* get() const noexcept { return object_; }
  // Gives up the reference: the caller releases the object.
  T* detach() noexcept { return std::exchange(object_, nullptr); }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_counted(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

// The same for an Object (value.hpp), which starts with one reference.
template <class T, class... Args>
Ref<T> make_object(Args&&... args) {
  return Ref<T>::adopt(new T(std::forward<Args>(args)...));
}

}  // namespace hami
