// trace: names, the rings of the threads, and the thread that empties them.
#include "observe/trace.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "observe/log.hpp"
#include "observe/trace_writer.hpp"
#include "sync/worker.hpp"
#include "value/error.hpp"

namespace hami::trace {
namespace {

constexpr Nanoseconds kDrainPeriod = 4'000'000;  // a thread fills its ring in this time at 2 million events per second
constexpr std::size_t kMaxKept = 1 << 20;        // events that `last` keeps, 56 MB
constexpr std::size_t kMaxNames = 1 << 16;
constexpr std::size_t kMaxWrite = 1 << 18;  // bytes that the writer collects before it writes

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

 private:
  Mutex mutex_;
  std::deque<std::string> texts_ HAMI_GUARDED_BY(mutex_){"", "(other)"};
  std::map<std::string_view, Name> numbers_ HAMI_GUARDED_BY(mutex_);
};

// Leaked intentionally: threads may use them until the process ends.
Names& names = *new Names;

// ---- rings

// One thread fills it, one empties it.
class Ring {
 public:
  static constexpr std::size_t kEvents = 1 << 13;

  explicit Ring(unsigned generation) : generation_(generation), thread_{static_cast<int>(syscall(SYS_gettid)), {}} {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    thread_.name = name;
  }

  // For the thread. `reserved`: places that must stay free behind the event.
  bool push(const Event& event, std::uint32_t session, std::size_t reserved) noexcept {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head + reserved >= known_tail_ + kEvents) {
      known_tail_ = tail_.load(std::memory_order_acquire);
      if (head + reserved >= known_tail_ + kEvents) {
        lost_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
    }
    slots_[head % kEvents] = {event, session};
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  // Events beside the ends of slices: each open slice has a place for its end.
  bool push(const Event& event, std::uint32_t session) noexcept { return push(event, session, open_); }
  bool open(const Event& event, std::uint32_t session) noexcept {
    if (!push(event, session, open_ + 1)) return false;
    ++open_;
    return true;
  }
  void close(const Event& event, std::uint32_t session) noexcept {
    if (open_ == 0) return;  // it was opened by another thread, or before a fork
    --open_;
    push(event, session, 0);
  }
  void end() noexcept { ended_.store(true, std::memory_order_release); }
  unsigned generation() const noexcept { return generation_; }

  // For the writer. Events of earlier sessions are skipped.
  template <class Use>
  void drain(std::uint32_t session, const Use& use) {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (; tail < head; ++tail) {
      const Slot& slot = slots_[tail % kEvents];
      if (slot.session == session) use(slot.event);
    }
    tail_.store(tail, std::memory_order_release);
  }
  std::uint64_t take_lost() noexcept { return lost_.exchange(0, std::memory_order_relaxed); }
  // Ask before the last drain.
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  const Thread& thread() const noexcept { return thread_; }
  std::optional<std::size_t> index;  // of the thread in the trace

 private:
  struct Slot {
    Event event;
    std::uint32_t session;
  };

  const unsigned generation_;
  Thread thread_;
  std::uint64_t known_tail_ = 0;
  std::size_t open_ = 0;
  std::unique_ptr<Slot[]> slots_{new Slot[kEvents]};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> ended_{false};
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

std::atomic<std::uint32_t> current_session{0};  // of the trace that is active, or was last
std::atomic<std::uint64_t> last_id{0};

// ---- the file

Error cannot_write(const std::string& path, int reason) {
  return Error(ErrorCode::kConfig, "cannot write the trace to \"" + path + "\": " +
                                       std::generic_category().message(reason) +
                                       "; give the path of a file in a folder that exists and can be written");
}

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), kFlags, 0666)) {
    if (file_ < 0) throw cannot_write(path_, errno);
  }
  ~File() { ::close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Whole packets; if they cannot be written, none of them is in the file.
  void write(const std::string& packets) {
    for (std::size_t done = 0; done < packets.size();) {
      const ssize_t count = ::write(file_, packets.data() + done, packets.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int reason = count < 0 ? errno : ENOSPC;
        if (ftruncate(file_, size_) != 0) {  // a device: nothing to take back
        }
        throw cannot_write(path_, reason);
      }
      done += static_cast<std::size_t>(count);
    }
    size_ += static_cast<off_t>(packets.size());
  }
  std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(size_); }

 private:
  static constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const std::string path_;
  const int file_;
  off_t size_ = 0;
};

// ---- what happens with the events

class Output {
 public:
  Output() = default;
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual void add(const Event& event, std::size_t index, const Thread& thread) = 0;
  virtual void flush(std::uint64_t lost, Nanoseconds moment) = 0;
  virtual std::uint64_t written() const noexcept = 0;
};

class WholeTrace final : public Output {
 public:
  explicit WholeTrace(const std::string& path) : file_(path) { write(); }

  void add(const Event& event, std::size_t index, const Thread& thread) override {
    writer_.add(event, index, thread);
    if (writer_.packets().size() >= kMaxWrite) write();
  }
  void flush(std::uint64_t lost, Nanoseconds moment) override {
    if (lost > 0) writer_.add_mark("lost events", moment, "count", lost);
    write();
  }
  std::uint64_t written() const noexcept override { return file_.size(); }

 private:
  void write() {
    file_.write(writer_.packets());
    writer_.clear();
  }

  TraceWriter writer_;
  File file_;
};

// Keeps the latest events, and replaces the file when a request was slow.
class SlowRequests final : public Output {
 public:
  explicit SlowRequests(const Options& options) : options_(options), part_(options.path + ".part") {
    const File writable(part_);
    if (::rename(part_.c_str(), options.path.c_str()) != 0) throw cannot_write(options.path, errno);
  }

  void add(const Event& event, std::size_t index, const Thread& thread) override {
    if (index >= threads_.size()) threads_.resize(index + 1);
    if (threads_[index].id == 0) threads_[index] = thread;
    kept_.push_back({event, index});
    if (event.kind == Event::kRequestEnd && event.time - event.until >= options_.slow && !slow_) slow_ = event;
  }
  void flush(std::uint64_t, Nanoseconds moment) override {
    // Threads are drained one after the other: an event may be older than those before it.
    while (!kept_.empty() && (kept_.size() > kMaxKept || kept_.front().event.time < moment - options_.last))
      kept_.pop_front();
    if (!slow_ || (files_ > 0 && moment - written_at_ < options_.last)) {
      slow_.reset();
      return;
    }
    write(*std::exchange(slow_, std::nullopt));
    written_at_ = moment;
    ++files_;
  }
  std::uint64_t written() const noexcept override { return files_; }

 private:
  struct Kept {
    Event event;
    std::size_t index;
  };

  void write(const Event& slow) {
    File file(part_);
    TraceWriter writer;
    writer.add_mark("slow request", slow.time, "request", slow.request);
    for (const Kept& each : kept_) {
      writer.add(each.event, each.index, threads_[each.index]);
      if (writer.packets().size() < kMaxWrite) continue;
      file.write(writer.packets());
      writer.clear();
    }
    file.write(writer.packets());
    if (::rename(part_.c_str(), options_.path.c_str()) != 0) throw cannot_write(options_.path, errno);
  }

  const Options options_;
  const std::string part_;
  std::deque<Kept> kept_;
  std::vector<Thread> threads_;
  std::optional<Event> slow_;
  Nanoseconds written_at_ = 0;
  std::uint64_t files_ = 0;
};

// ---- the active trace

class Recorder {
 public:
  void start(const Options& options) {
    MutexLock starting(control_);
    if (worker_)
      throw Error(ErrorCode::kAlreadyExists,
                  "a trace of this process is active already, to \"" + path_ + "\"; stop it first");
    std::unique_ptr<Output> output;
    if (options.last > 0)
      output = std::make_unique<SlowRequests>(options);
    else
      output = std::make_unique<WholeTrace>(options.path);
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
const int stops_in_child = pthread_atfork(nullptr, nullptr, [] { detail::active = false; });

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
