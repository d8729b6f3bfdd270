// SerializedBackend: a mutex that detects recursion and never waits while the GIL is held.
#include "backend/serialized_backend.hpp"

#include "sync/blocking.hpp"

namespace hami {

class SerializedBackend::CallScope {
 public:
  explicit CallScope(SerializedBackend& backend) : backend_(backend) {
    const std::thread::id self = std::this_thread::get_id();
    if (backend.holder_.load(std::memory_order_relaxed) == self)
      throw Error(ErrorCode::kReentrantCall, backend.label() + " called itself; it runs one call at a time");
    if (!backend.mutex_.try_lock()) {
      BlockingScope blocking;
      backend.mutex_.lock();
    }
    backend.holder_.store(self, std::memory_order_relaxed);
  }
  ~CallScope() {
    backend_.holder_.store({}, std::memory_order_relaxed);
    backend_.mutex_.unlock();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  SerializedBackend& backend_;
};

void SerializedBackend::forward_(Batch batch) {
  const CallScope scope(*this);
  inner_->forward(batch);
}

void SerializedBackend::forward_with_dep_(Batch batch, Backend& dependency) {
  const CallScope scope(*this);
  inner_->forward_with_dep(batch, dependency);
}

}  // namespace hami
