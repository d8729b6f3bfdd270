// trace: names, the rings of the threads, and the thread that empties them into an output.
#include "observe/trace.hpp"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "observe/log.hpp"
#include "observe/trace_output.hpp"
#include "observe/trace_ring.hpp"
#include "observe/trace_sample.hpp"
#include "sync/worker.hpp"
#include "value/error.hpp"

namespace hami::trace {
namespace {

constexpr Nanoseconds kDrainPeriod = 4'000'000;  // a thread fills its ring in this time at 2 million events per second
constexpr std::size_t kMaxNames = 1 << 16;

// ---- names

class Names {
 public:
  Name intern(std::string_view text) {
    if (text.empty()) return 0;
    MutexLock lock(mutex_);
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    if (texts_.size() >= kMaxNames) return kOther;
    texts_.emplace_back(text);
    const auto number = static_cast<Name>(texts_.size() - 1);
    numbers_.emplace(texts_.back(), number);  // views of elements of a deque, which stay where they are
    return number;
  }
  std::string text_of(Name name) {
    MutexLock lock(mutex_);
    return texts_[name];
  }
  static constexpr Name kOther = 1;

  // Around a fork: no thread that the child lacks may hold the mutex.
  void lock() HAMI_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() HAMI_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  Mutex mutex_;
  std::deque<std::string> texts_ HAMI_GUARDED_BY(mutex_){"", "(other)"};
  std::map<std::string_view, Name> numbers_ HAMI_GUARDED_BY(mutex_);
};

// Leaked intentionally: threads may use them until the process ends.
Names& names = *new Names;

std::atomic<std::uint32_t> current_session{0};  // of the trace that is active, or was last
std::atomic<std::uint64_t> last_id{0};

// ---- the active trace

class Recorder {
 public:
  void start(const Options& options) {
    MutexLock starting(control_);
    if (worker_)
      throw Error(ErrorCode::kAlreadyExists,
                  "a trace of this process is active already, to \"" + path_ + "\"; stop it first");
    std::unique_ptr<Output> output = open_output(options);
    auto worker = std::make_unique<Worker>("hami-trace");
    path_ = options.path;
    {
      MutexLock lock(mutex_);
      stopping_ = false;
      summary_ = {};
      for (const std::shared_ptr<Ring>& ring : rings_) {
        ring->index.reset();
        ring->take_lost();
      }
    }
    threads_ = 0;
    output_ = std::move(output);
    begin_sampling(options.last > 0, options.slow);
    const std::uint32_t session = current_session.fetch_add(1) + 1;
    worker->post([this, session] { loop(session); });
    worker_ = std::move(worker);
    detail::active = true;
  }

  Summary stop() {
    MutexLock stopping(control_);
    if (!worker_) return {};
    detail::active = false;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    worker_ = nullptr;  // joins
    output_ = nullptr;
    MutexLock lock(mutex_);
    return summary_;
  }

  Ring* add_ring(std::shared_ptr<Ring> ring) {
    MutexLock lock(mutex_);
    rings_.push_back(std::move(ring));
    return rings_.back().get();
  }

 private:
  void loop(std::uint32_t session) noexcept {
    bool last = false;
    try {
      while (!last) {
        {
          MutexLock lock(mutex_);
          changed_.wait_until(lock, now() + kDrainPeriod, [&] {
            mutex_.assert_held();
            return stopping_;
          });
          last = stopping_;
        }
        drain(session);
      }
    } catch (...) {
      detail::active = false;
      fail(current_error().message());
    }
  }

  void drain(std::uint32_t session) {
    std::vector<std::shared_ptr<Ring>> rings;
    {
      MutexLock lock(mutex_);
      rings = rings_;
    }
    begin_period();
    std::uint64_t events = 0, lost = 0;
    for (const std::shared_ptr<Ring>& ring : rings) {
      const bool ended = ring->ended();
      ring->drain(session, [&](const Event& event) {
        if (!ring->index) ring->index = threads_++;
        output_->add(event, *ring->index, ring->thread());
        ++events;
      });
      lost += ring->take_lost();
      if (ended) remove(ring);
    }
    output_->flush(lost, now());
    MutexLock lock(mutex_);
    summary_.events += events;
    summary_.lost += lost;
    summary_.written = output_->written();
  }

  void remove(const std::shared_ptr<Ring>& ring) {
    MutexLock lock(mutex_);
    rings_.erase(std::remove(rings_.begin(), rings_.end(), ring), rings_.end());
  }

  void fail(const std::string& why) noexcept {
    try {
      log("hami", "the trace has ended early: " + why + "; the pipes go on without it");
      MutexLock lock(mutex_);
      summary_.error = why;
    } catch (const std::bad_alloc&) {
    }
  }

  Mutex control_;  // held by start and stop
  std::string path_ HAMI_GUARDED_BY(control_);
  std::unique_ptr<Worker> worker_ HAMI_GUARDED_BY(control_);
  // Of the worker while there is one.
  std::unique_ptr<Output> output_;
  std::size_t threads_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ HAMI_GUARDED_BY(mutex_) = false;
  Summary summary_ HAMI_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Ring>> rings_ HAMI_GUARDED_BY(mutex_);
};

PerProcess<Recorder>& recorder = *new PerProcess<Recorder>;

// The writer thread does not exist in the child of a fork.
const int stops_in_child = pthread_atfork([]() HAMI_NO_THREAD_SAFETY_ANALYSIS {
  names.lock();
}, []() HAMI_NO_THREAD_SAFETY_ANALYSIS { names.unlock(); }, []() HAMI_NO_THREAD_SAFETY_ANALYSIS {
  names.unlock();
  detail::active = false;
});

// ---- the current thread

thread_local Ring* ring_of_thread = nullptr;
thread_local bool thread_ends = false;

struct RingOwner {
  ~RingOwner() {
    if (ring) ring->end();
    ring_of_thread = nullptr;
    thread_ends = true;
  }
  std::shared_ptr<Ring> ring;
};

// Null without memory, and while the thread ends.
Ring* ring() noexcept {
  if (ring_of_thread && ring_of_thread->generation() == fork_generation()) return ring_of_thread;
  if (thread_ends) return nullptr;
  thread_local RingOwner owner;
  try {
    owner.ring = std::make_shared<Ring>(fork_generation());
    return ring_of_thread = recorder.get().add_ring(owner.ring);
  } catch (...) {
    return nullptr;
  }
}

std::uint32_t session() noexcept { return current_session.load(std::memory_order_relaxed); }

}  // namespace

Name intern(std::string_view text) noexcept {
  try {
    return names.intern(text);
  } catch (const std::bad_alloc&) {
    return Names::kOther;
  }
}

std::string text_of(Name name) { return names.text_of(name); }

bool samples_step() noexcept { return !is_sampling() || (ring_of_thread && ring_of_thread->has_open_slice()); }

std::uint64_t next_id() noexcept { return last_id.fetch_add(1, std::memory_order_relaxed) + 1; }

void record(const Event& event) noexcept {
  if (Ring* const own = ring()) own->push(event, session());
}

std::uint32_t begin_slice(Event event) noexcept {
  event.kind = Event::kBegin;
  const std::uint32_t now_active = session();
  Ring* const own = ring();
  return own && own->open(event, now_active) ? now_active : 0;
}

void end_slice(std::uint32_t token) noexcept {
  if (token == 0) return;
  Event event;
  event.kind = Event::kEnd;
  event.time = now();
  if (Ring* const own = ring()) own->close(event, token);
}

void Slice::begin(const Event& event) noexcept { session_ = begin_slice(event); }

void Slice::end() noexcept { end_slice(std::exchange(session_, 0)); }

void start(const Options& options) {
  (void)stops_in_child;
  recorder.get().start(options);
}

Summary stop() { return recorder.get().stop(); }

}  // namespace hami::trace
