// Worker: the thread, its queue of jobs, and a stop that never hangs its owner.
#include "sync/worker.hpp"

#include <pthread.h>

#include <atomic>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.hpp"
#include "sync/spin.hpp"
#include "sync/waiting.hpp"
#include "value/error.hpp"

namespace hami {

thread_local const WorkScope* WorkScope::innermost_ = nullptr;

// Shared with the thread, so that an abandoned thread never uses freed memory.
struct Worker::State {
  explicit State(const void* for_whom) noexcept : owner(for_whom) {}

  const void* const owner;
  Mutex mutex;
  CondVar work;  // notified for the thread: a job, or closing
  CondVar ended_changed;
  std::deque<std::function<void()>> jobs HAMI_GUARDED_BY(mutex);
  bool closing HAMI_GUARDED_BY(mutex) = false;
  bool ended HAMI_GUARDED_BY(mutex) = false;
  bool stopped HAMI_GUARDED_BY(mutex) = false;  // the thread is joined or detached
  std::atomic<bool> has_work{false};            // closing || !jobs.empty(), readable without the mutex
  std::thread thread;
  static thread_local const State* current;  // of this thread; null: it is not a worker's

  void loop() {
    current = this;
    const WorkScope scope(owner);
    Spin spin;
    while (std::function<void()> job = next_job(spin)) {
      job();
      job = nullptr;  // destroyed without the mutex
    }
    MutexLock lock(mutex);
    ended = true;
    ended_changed.notify_all();
  }

 private:
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

Worker::Worker(std::string name, const void* owner) : state_(std::make_shared<State>(owner)) {
  try {
    state_->thread = std::thread([state = state_, name = name.substr(0, 15)] {
      pthread_setname_np(pthread_self(), name.c_str());
      state->loop();
    });
  } catch (const std::system_error& error) {  // its what() differs between C++ libraries
    throw Error(ErrorCode::kInternal, error.code().message());
  }
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
  struct Outcome {
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
  const bool ended = !is_current() && wait_for(state->mutex, state->ended_changed, until, [&] {
    state->mutex.assert_held();
    return state->ended;
  });
  MutexLock lock(state->mutex);
  if (std::exchange(state->stopped, true)) return true;
  if (ended)
    state->thread.join();
  else
    state->thread.detach();
  return ended || is_current();
}

}  // namespace hami
