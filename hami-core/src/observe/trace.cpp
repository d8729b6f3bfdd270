// trace: names, and the rings of the threads.
#include "observe/trace.hpp"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "observe/trace_ring.hpp"

namespace hami::trace {
namespace {

constexpr std::size_t kMaxNames = 1 << 16;

// ---- names

class Names {
 public:
  Names() {
    for (const char* const text : {"", "(other)"}) texts_.push_back(std::make_unique<const std::string>(text));
  }
  Name intern(std::string_view text) {
    if (text.empty()) return 0;
    MutexLock lock(mutex_);
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    if (texts_.size() >= kMaxNames) return kOther;
    texts_.push_back(std::make_unique<const std::string>(text));
    const auto number = static_cast<Name>(texts_.size() - 1);
    numbers_.emplace(*texts_.back(), number);
    return number;
  }
  std::string text_of(Name name) {
    MutexLock lock(mutex_);
    return *texts_[name];
  }
  static constexpr Name kOther = 1;

  // Around a fork: no thread that the child lacks may hold the mutex.
  void lock() HAMI_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() HAMI_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<const std::string>> texts_ HAMI_GUARDED_BY(mutex_);  // `numbers_` has views of them
  std::map<std::string_view, Name> numbers_ HAMI_GUARDED_BY(mutex_);
};

// Leaked intentionally: threads may use them until the process ends.
Names& names = *new Names;

std::atomic<std::uint32_t> current_session{0};  // of the trace that is active, or was last
std::atomic<std::uint64_t> last_id{0};

// ---- the threads

struct Rings {
  Mutex mutex;
  std::vector<std::shared_ptr<Ring>> all HAMI_GUARDED_BY(mutex);
};

PerProcess<Rings>& rings_of_process = *new PerProcess<Rings>;

Ring* add_ring(std::shared_ptr<Ring> ring) {
  Rings& own = rings_of_process.get();
  MutexLock lock(own.mutex);
  own.all.push_back(std::move(ring));
  return own.all.back().get();
}

// The writer thread does not exist in the child of a fork.
const int stops_in_child = pthread_atfork([]() HAMI_NO_THREAD_SAFETY_ANALYSIS {
  names.lock();
  // held over a fork: the child gets the names whole
}, []() HAMI_NO_THREAD_SAFETY_ANALYSIS { names.unlock(); }, []() HAMI_NO_THREAD_SAFETY_ANALYSIS {
  names.unlock();  // locked before the fork
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
    return ring_of_thread = add_ring(owner.ring);
  } catch (...) {  // no memory: this thread records nothing
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

std::vector<std::shared_ptr<Ring>> rings() {
  Rings& own = rings_of_process.get();
  MutexLock lock(own.mutex);
  return own.all;
}

void remove_ring(const std::shared_ptr<Ring>& ring) noexcept {
  Rings& own = rings_of_process.get();
  MutexLock lock(own.mutex);
  own.all.erase(std::remove(own.all.begin(), own.all.end(), ring), own.all.end());
}

std::uint32_t begin_session() noexcept {
  (void)stops_in_child;
  return current_session.fetch_add(1) + 1;
}

}  // namespace hami::trace
