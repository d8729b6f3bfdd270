// The one interface that everything in a pipeline has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "request/request.hpp"

namespace hami {

class Backend;
class Init;

enum class ThreadMode {
  kDedicated,   // init, forward and close on one thread of its own
  kSerialized,  // one call at a time, on any thread
  kConcurrent,  // many calls at a time
};

struct Traits {
  ThreadMode thread = ThreadMode::kConcurrent;
  bool non_blocking = false;  // forward takes microseconds and never blocks: it may run on any caller's thread
  bool idempotent = true;     // a failed batch may run again, each request alone
};

class Worker;
using BackendPtr = std::shared_ptr<Backend>;

// How many items one forward takes.
struct Range {
  static constexpr std::size_t kUnbounded = SIZE_MAX;
  std::size_t min = 1;
  std::size_t max = kUnbounded;  // kUnbounded: none declared
  bool declared() const noexcept { return max != kUnbounded; }
};

// A container's range: that of its child with the smallest declared max above 1; children of max 1 are called item by item.
Range narrowest(const std::vector<Range>& children);
inline constexpr const char* kNarrowest = "that of the item with the smallest declared `max` above 1";

// What `post` may do on the thread that calls it.
enum class InlinePolicy {
  kAllow,        // a caller that waits anyhow: run whatever may run on any thread
  kNonBlocking,  // a caller that must not be held up: only non-blocking classes
  kEventLoop,    // as kNonBlocking, from an event loop: a full queue takes it all the same, for the task waits, not the loop
};

// Public functions are not virtual; authors override the private ones.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  void init(Init& init) { init_(init); }

  // Runs the batch and returns when it is done. Each request then has `result`, or `error`, or neither (NoResult is the
  // caller's verdict). Throws only if the batch as a whole failed; requests with an error of their own keep it.
  // A batch over max() is cut into parts that fit.
  void forward(Batch batch);
  void forward_with_dep(Batch batch, Backend& dependency) { forward_with_dep_(batch, dependency); }
  void inject_dependency(const BackendPtr& dependency) { inject_dependency_(dependency); }

  // Starts the batch; each request reaches its sink exactly once, perhaps before this returns. The caller's references
  // are borrowed for the call.
  void post(Batch batch, InlinePolicy how) noexcept;

  std::size_t min() const { return range_().min; }
  std::size_t max() const { return range_().max; }
  Range range() const { return range_(); }

  // The thread of its own that all its calls must be made on, or null.
  virtual Worker* own_worker() noexcept { return nullptr; }
  // What runs on that thread, or this.
  virtual Backend& on_own_thread() noexcept { return *this; }
  // True if forward begins by taking the global lock of a language.
  virtual bool acquires_gil() const noexcept { return false; }
  // True if `post` returns without waiting for the work.
  virtual bool is_asynchronous() const noexcept { return false; }

  // The name as it was written, for messages.
  const std::string& label() const noexcept { return label_; }
  // Its own and its children's together.
  const Traits& traits() const noexcept { return traits_; }
  void describe(std::string label, const Traits& traits) {
    label_ = std::move(label);
    traits_ = traits;
  }

 private:
  virtual void init_(Init&) {}
  virtual void forward_(Batch batch) = 0;
  // May throw only before the first request has reached its sink. This one runs forward, and if that throws tries each
  // request again alone: nobody who posts can, for all he is told is what became of each.
  virtual void post_(Batch batch, InlinePolicy how);
  virtual Range range_() const { return {}; }

 protected:
  // For who fails requests one by one: says of those that have just failed that it was here.
  void add_backend_note(Batch batch) const;

  virtual void forward_with_dep_(Batch batch, Backend& dependency);
  virtual void inject_dependency_(const BackendPtr& dependency);

 private:
  void forward_part(Batch part);
  std::string label_;
  Traits traits_;
};

// For a backend whose work is asynchronous: posts and waits.
void post_and_wait(Backend& backend, Batch batch);

}  // namespace hami
