// OneAtATime: taking turns, without a deadlock of a thread with itself or with a language's global lock.
#include "backend/serialized_backend.hpp"

#include "sync/blocking.hpp"

namespace hami {

class OneAtATime::Turn {
 public:
  explicit Turn(OneAtATime& backend) : backend_(backend) {
    const std::thread::id self = std::this_thread::get_id();
    if (backend.holder_.load(std::memory_order_relaxed) == self)
      throw Error(ErrorCode::kReentrantCall, backend.label() + " was called by itself; it takes one call at a time");
    if (!backend.mutex_.try_lock()) {
      BlockingScope blocking;
      backend.mutex_.lock();
    }
    backend.holder_.store(self, std::memory_order_relaxed);
  }
  ~Turn() {
    backend_.holder_.store({}, std::memory_order_relaxed);
    backend_.mutex_.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  OneAtATime& backend_;
};

void OneAtATime::forward_(Batch batch) {
  const Turn turn(*this);
  inner_->forward(batch);
}

void OneAtATime::forward_with_dep_(Batch batch, Backend& dependency) {
  const Turn turn(*this);
  inner_->forward_with_dep(batch, dependency);
}

}  // namespace hami
