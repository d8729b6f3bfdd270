// Worker and WorkerPool: the threads of the core.
#include "sync/worker.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "sync/waiting.hpp"

namespace hami {

// ---- Worker: the thread, its queue of jobs, and a stop that never hangs its owner.

thread_local const WorkScope* WorkScope::innermost_ = nullptr;

namespace {

constexpr std::size_t kBesideStack = 64 << 10;   // bytes, for its guard page
constexpr std::size_t kThreadLocals = 16 << 10;  // bytes, many times what they need

bool has_memory_for(std::size_t bytes) noexcept {
  void* const probe = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return probe != MAP_FAILED && munmap(probe, bytes) == 0;
}

// The C library allocates the thread-local data of a library when a thread first uses them, and ends the process if there is no
// memory: this makes sure that there is, and uses those of this library and of the C++ runtime.
bool allocate_thread_locals() noexcept {
  void* volatile probe = std::malloc(kThreadLocals);
  if (!probe) return false;
  std::free(probe);
  (void)WorkScope::inside(nullptr);
  (void)std::uncaught_exceptions();
  return true;
}

// The system reports one error for two reasons: no memory for the stack, and a limit on threads.
Error no_thread(const std::error_code& reason) {
  const std::string what = "cannot start a thread: ";
  if (reason.value() != EAGAIN) return Error(ErrorCode::kInternal, what + reason.message());
  pthread_attr_t defaults;
  std::size_t stack = 0;
  pthread_attr_init(&defaults);
  pthread_attr_getstacksize(&defaults, &stack);
  pthread_attr_destroy(&defaults);
  const std::string text =
      has_memory_for(stack + kBesideStack)
          ? "the limit on threads is reached; raise it (ulimit -u, or pids.max of the control group)"
          : "no memory for its stack of " + std::to_string(stack >> 10) +
                " kB; free memory, raise the limit (ulimit -v), or make stacks smaller (ulimit -s)";
  return Error(ErrorCode::kOutOfMemory, what + text, {}, true);
}

}  // namespace

// Shared with the thread, so that an abandoned thread never uses freed memory.
struct Worker::State {
  explicit State(const void* for_whom) : owner(for_whom) {}

  const void* const owner;
  Mutex mutex;
  CondVar work;           // notified for the thread: a job, or closing
  CondVar state_changed;  // notified for the owner: `attached`, `ended`
  std::function<void()> at_end;
  std::deque<std::function<void()>> jobs HAMI_GUARDED_BY(mutex);
  std::optional<bool> attached HAMI_GUARDED_BY(mutex);  // to the language; set when the thread has started
  bool closing HAMI_GUARDED_BY(mutex) = false;
  bool ended HAMI_GUARDED_BY(mutex) = false;
  bool stopped HAMI_GUARDED_BY(mutex) = false;  // the thread is joined or detached
  std::atomic<bool> has_work{false};            // closing || !jobs.empty(), readable without the mutex
  std::thread thread;
  static thread_local const State* current;  // of this thread; null: it is not a worker's

  void run(const std::string& name) {
    pthread_setname_np(pthread_self(), name.c_str());
    const bool succeeded = allocate_thread_locals() && attach_thread();
    {
      MutexLock lock(mutex);
      attached = succeeded;
      state_changed.notify_all();
    }
    if (succeeded) loop();
  }

  bool wait_until_attached() {
    MutexLock lock(mutex);
    state_changed.wait(lock, [&] {
      mutex.assert_held();
      return attached.has_value();
    });
    return *attached;
  }

 private:
  void loop() {
    current = this;
    const WorkScope scope(owner);
    Spin spin;
    while (std::function<void()> job = next_job(spin)) {
      job();
      job = nullptr;  // destroyed without the mutex
    }
    if (at_end) at_end();
    at_end = nullptr;
    detach_thread();
    MutexLock lock(mutex);
    ended = true;
    state_changed.notify_all();
  }

  // Waits for a job; empty when the worker closes.
  std::function<void()> next_job(Spin& spin) {
    if (!has_work) spin.until([&] { return has_work.load(std::memory_order_acquire); });
    MutexLock lock(mutex);
    work.wait(lock, [&] {
      mutex.assert_held();
      return closing || !jobs.empty();
    });
    if (jobs.empty()) return {};
    std::function<void()> job = std::move(jobs.front());
    jobs.pop_front();
    has_work = closing || !jobs.empty();
    return job;
  }
};

thread_local const Worker::State* Worker::State::current = nullptr;

Worker::Worker(const std::string& name, const void* owner, std::function<void()> at_end)
    : state_(std::make_shared<State>(owner)) {
  try {
    state_->thread = std::thread([state = state_, name = name.substr(0, 15)] { state->run(name); });
  } catch (const std::system_error& error) {
    throw no_thread(error.code());
  }
  if (!state_->wait_until_attached()) {
    state_->thread.join();
    throw Error::out_of_memory();
  }
  state_->at_end = std::move(at_end);
}

Worker::~Worker() {
  const UninterruptibleScope must_finish;
  stop(kNever);
}

void Worker::post(std::function<void()> job) {
  const std::shared_ptr<State> state = state_;  // the job may destroy this worker before its thread is notified
  {
    MutexLock lock(state->mutex);
    state->jobs.push_back(std::move(job));
    state->has_work = true;
  }
  state->work.notify_one();  // without the mutex: otherwise the thread wakes and waits for it
}

void Worker::run(const std::function<void()>& job) {
  if (is_current()) return job();
  struct Ended {
    Mutex mutex;
    CondVar changed;
    bool done HAMI_GUARDED_BY(mutex) = false;
    std::optional<Error> error HAMI_GUARDED_BY(mutex);
  } outcome;
  post([&, caller = WorkScope::innermost_] {
    const WorkScope lent(state_->owner, caller);
    std::optional<Error> error;
    try {
      job();
    } catch (...) {
      error = current_error();
    }
    MutexLock lock(outcome.mutex);
    outcome.done = true;
    outcome.error = std::move(error);
    outcome.changed.notify_all();
  });
  BlockingScope blocking;
  MutexLock lock(outcome.mutex);
  outcome.changed.wait(lock, [&] {
    outcome.mutex.assert_held();
    return outcome.done;
  });
  if (outcome.error) throw Error(*outcome.error);
}

bool Worker::is_current() const noexcept { return state_.get() == State::current; }

bool Worker::on_some_worker() noexcept { return State::current != nullptr; }

bool Worker::stop(Nanoseconds until) {
  const std::shared_ptr<State> state = state_;  // its own job may destroy this worker
  const BlockingScope blocking;
  {
    MutexLock lock(state->mutex);
    if (state->stopped) return true;
    state->closing = true;
    state->has_work = true;
    state->work.notify_all();
  }
  // A thread cannot wait for its own end.
  const bool ended = !is_current() && wait_for(state->mutex, state->state_changed, until, [&] {
    state->mutex.assert_held();
    return state->ended;
  });
  MutexLock lock(state->mutex);
  if (std::exchange(state->stopped, true)) return true;
  if (ended)
    state->thread.join();
  else
    state->thread.detach();  // it is this one, or runs on; it owns the state
  return ended || is_current();
}

// ---- WorkerPool: an idle worker, a new one, or the queue.

namespace {
thread_local bool is_pooled = false;
}

bool WorkerPool::on_some_pool() noexcept { return is_pooled; }

bool WorkerPool::post(std::function<void()> job) {
  MutexLock lock(mutex_);
  if (stopping_) throw Error::pipe_closed();
  if (idle_.empty()) {
    if (workers_.size() == limit_) {
      waiting_.push_back(std::move(job));
      return false;
    }
    add_worker();
  }
  Worker* const worker = idle_.back();
  worker->post([this, worker, job = std::move(job)]() mutable { work(*worker, std::move(job)); });
  idle_.pop_back();
  return true;
}

// Afterwards `idle_` has the capacity for all workers.
void WorkerPool::add_worker() {
  workers_.reserve(workers_.size() + 1);
  idle_.reserve(workers_.size() + 1);
  workers_.push_back(std::make_unique<Worker>(name_, owner_));
  idle_.push_back(workers_.back().get());
}

void WorkerPool::work(Worker& worker, std::function<void()> job) {
  is_pooled = true;
  for (;;) {
    job();
    job = nullptr;
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      idle_.push_back(&worker);
      return;
    }
    job = std::move(waiting_.front());
    waiting_.pop_front();
  }
}

bool WorkerPool::is_quiet() {
  MutexLock lock(mutex_);
  return idle_.size() == workers_.size() && waiting_.empty();
}

bool WorkerPool::stop(Nanoseconds until) {
  std::size_t count = 0;
  {
    MutexLock lock(mutex_);
    stopping_ = true;  // no worker is added or removed from here on
    count = workers_.size();
  }
  bool stopped = true;
  for (std::size_t i = 0; i < count; ++i) stopped = worker(i).stop(until) && stopped;
  return stopped;
}

Worker& WorkerPool::worker(std::size_t index) {
  MutexLock lock(mutex_);
  return *workers_[index];
}

}  // namespace hami
