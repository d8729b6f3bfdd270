// Event: one outcome for all waiting threads and callbacks.
#include "sync/event.hpp"

#include <algorithm>

#include "sync/waiting.hpp"

namespace hami {

bool Event::finish(std::optional<Error> error, Value value) noexcept {
  const Value self = Value::share(*this);  // a callback may drop the last other reference
  std::vector<std::pair<std::uint64_t, Callback>> callbacks;
  {
    MutexLock lock(mutex_);
    if (missing_ == 0) return false;
    if (error && !error_) error_ = std::move(error);
    if (--missing_ > 0) return true;
    if (count_ == 1) value_ = std::move(value);
    callbacks.swap(callbacks_);
    changed_.notify_all();
  }
  for (auto& [number, callback] : callbacks) {
    callback(*this);
    callback = nullptr;  // its captures are destroyed before the next one runs
  }
  return true;
}

bool Event::done() const noexcept {
  MutexLock lock(mutex_);
  return missing_ == 0;
}

std::optional<Error> Event::error() const {
  MutexLock lock(mutex_);
  return missing_ == 0 ? error_ : std::nullopt;
}

Value Event::value() const {
  MutexLock lock(mutex_);
  return value_;
}

bool Event::wait_until(Nanoseconds moment) const {
  return done() || wait_for(mutex_, changed_, moment, [&] {
    mutex_.assert_held();
    return missing_ == 0;
  });
}

std::uint64_t Event::on_done(Callback callback) {
  {
    MutexLock lock(mutex_);
    if (missing_ > 0) {
      callbacks_.emplace_back(++last_number_, std::move(callback));
      return last_number_;
    }
  }
  callback(*this);
  return 0;
}

bool Event::forget(std::uint64_t number) noexcept {
  Callback callback;  // destroyed without the mutex
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(callbacks_.begin(), callbacks_.end(), [&](const auto& entry) { return entry.first == number; });
  if (found == callbacks_.end()) return false;
  callback = std::move(found->second);
  callbacks_.erase(found);
  return true;
}

const Object* Event::held_alone() const noexcept {
  if (!mutex_.try_lock()) return nullptr;  // no scope: a caller that would wait gets nullptr
  const bool shared = error_ && !error_->alone();
  const Value& held = error_ ? error_->payload() : value_;
  const Object* const object = !shared && held.is_counted() && held.object()->alone() ? held.object() : nullptr;
  mutex_.unlock();  // nothing above throws
  return object;
}

void Event::clear_outcome() noexcept {
  std::optional<Error> error;  // both are destroyed without the mutex
  Value value;
  MutexLock lock(mutex_);
  error.swap(error_);
  std::swap(value, value_);
}

bool Event::claim() noexcept {
  MutexLock lock(mutex_);
  if (missing_ == 0 || claimed_ == count_) return false;
  ++claimed_;
  return true;
}

Event& as_event(const Value& value) {
  if (value.kind() != Kind::kEvent)
    throw Error(ErrorCode::kDataType, std::string("expected Event, got ") + kind_name(value.kind()));
  return *static_cast<Event*>(value.object());
}

}  // namespace hami
