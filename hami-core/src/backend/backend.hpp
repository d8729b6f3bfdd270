// Backend: the interface of everything in a pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "observe/api.hpp"
#include "request/api.hpp"

namespace hami {

class Backend;
class Init;

enum class ThreadMode {
  kDedicated,   // init, forward and close on one thread of its own
  kSerialized,  // one call at a time, on any thread
  kConcurrent,  // many calls at a time
};

struct Traits {
  static constexpr std::int64_t kAnyCount = INT64_MAX;
  ThreadMode thread = ThreadMode::kConcurrent;
  bool non_blocking = false;  // forward takes microseconds and never blocks: it may run on any caller's thread
  bool idempotent = true;     // a failed batch may run again, each request alone
  bool lightweight = false;   // another instance costs nearly nothing: no memory to speak of, no thread
  // With lightweight: how many instances "auto" builds at most if its `device` is not the CPU; 1: it does not count as lightweight.
  std::int64_t instances_on_device = 1;
  std::int64_t most_instances = kAnyCount;  // of its node: instances_on_device if it is on one
  bool on_device = false;                   // its `device` is not the CPU: the instances of a node share that device
};

class Worker;
using BackendPtr = std::shared_ptr<Backend>;

// How many items one forward takes.
struct Range {
  static constexpr std::size_t kUnbounded = SIZE_MAX;
  static constexpr std::size_t kAuto = SIZE_MAX - 1;  // above every number, so that it gives way to one
  std::size_t min = 1;
  std::size_t max = kUnbounded;  // kUnbounded: none declared; kAuto: any number, and the node learns the batch size
  bool declared() const noexcept { return max != kUnbounded; }
  bool is_auto() const noexcept { return max == kAuto; }
};

// A maximum for users: a number, or "auto".
std::string show_max(std::size_t max);

// The range of a container: that of the child with the smallest declared max above 1. Children with max 1 are called item by
// item.
Range narrowest(const std::vector<Range>& children);
inline constexpr const char* kNarrowest = "as the item with the smallest declared `max` above 1";

// What `post` may do on the thread that calls it.
enum class InlinePolicy {
  kAllow,        // the caller waits for the result: run every backend that may run on any thread
  kNonBlocking,  // the caller must not be delayed: run only non-blocking backends
  kEventLoop,    // as kNonBlocking, and a full queue accepts the request: its task waits, never the event loop
};

// The public functions are not virtual; authors override the private ones.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  void init(Init& init) { init_(init); }

  // Runs the batch. Afterwards each request has `result`, or `error`, or neither (the caller then reports NoResult). Throws
  // only if the batch as a whole failed; requests with an error of their own keep it. A batch over max() is split.
  void forward(Batch batch);
  void forward_with_dep(Batch batch, Backend& dependency) { forward_with_dep_(batch, dependency); }
  void inject_dependency(const BackendPtr& dependency) { inject_dependency_(dependency); }
  // From now on, forward also does the work of `next`, after its own. Both are initialised.
  void absorb(BackendPtr next) { absorb_(std::move(next)); }

  // Starts the batch. Each request reaches its sink exactly once, possibly before this returns. The requests are borrowed for
  // the call.
  void post(Batch batch, InlinePolicy how) noexcept;

  // What the items of its requests cost, for the queue of a node that begins with this backend; null: it does not declare it. The
  // function exists as long as the backend, and may be called while `forward` runs.
  CostFunction request_cost() const { return request_cost_(); }

  std::size_t min() const { return range_().min; }
  std::size_t max() const { return range_().max; }
  Range range() const { return range_(); }

  // The dedicated thread on which all calls must be made, or null.
  virtual Worker* own_worker() noexcept { return nullptr; }
  // The backend that runs on that thread, or this one.
  virtual Backend& on_own_thread() noexcept { return *this; }
  // True if `forward` starts by acquiring the GIL.
  virtual bool acquires_gil() const noexcept { return false; }
  // True if `post` returns without waiting for the work.
  virtual bool is_asynchronous() const noexcept { return false; }

  // The name as written in the expression, for messages.
  const std::string& label() const noexcept { return label_; }
  // Adds the time of each forward to `time`, which outlives the backend; null: it is not measured.
  void measure(BackendTime* time) noexcept { time_ = time; }
  // Its own traits combined with those of its children.
  const Traits& traits() const noexcept { return traits_; }
  void describe(std::string label, const Traits& traits) {
    label_ = std::move(label);
    trace_name_ = trace::intern(label_);
    traits_ = traits;
  }

 private:
  virtual void init_(Init&) {}
  virtual void forward_(Batch batch) = 0;
  // May throw only before the first request has reached its sink. The default runs `forward`; if that throws, it runs each
  // request again alone, because the poster only learns the outcome of each request.
  virtual void post_(Batch batch, InlinePolicy how);
  virtual Range range_() const { return {}; }
  virtual CostFunction request_cost_() const { return {}; }

 protected:
  // For backends that fail requests one by one: adds this backend as a note to the errors of the batch.
  void add_backend_note(Batch batch) const;

  virtual void forward_with_dep_(Batch batch, Backend& dependency);
  virtual void inject_dependency_(const BackendPtr& dependency);
  virtual void absorb_(BackendPtr next);

 private:
  void forward_part(Batch part);
  void begin_slice(Batch part, trace::Slice& slice) const noexcept;
  std::string label_;
  trace::Name trace_name_ = 0;
  Traits traits_;
  BackendTime* time_ = nullptr;
};

// `forward` of an asynchronous backend: posts the batch and waits.
void post_and_wait(Backend& backend, Batch batch);

}  // namespace hami
