// Worker: a thread, its queue of jobs, and an end that cannot hang its owner.
#include "sync/worker.hpp"

#include <pthread.h>

#include <atomic>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>

#include "sync/blocking.hpp"
#include "value/error.hpp"
#include "sync/spin.hpp"
#include "base/mutex.hpp"

namespace hami {
namespace {
thread_local bool is_worker = false;
}

// Shared with the thread itself, so that an abandoned thread never touches freed memory.
struct Worker::State {
  Mutex mutex;
  CondVar work;   // for the thread: a job, or closing
  CondVar over;   // for who waits for its end
  std::deque<std::function<void()>> jobs HAMI_GUARDED_BY(mutex);
  bool closing HAMI_GUARDED_BY(mutex) = false;
  bool ended HAMI_GUARDED_BY(mutex) = false;
  std::atomic<bool> called{false};  // the same as closing || !jobs.empty(), for a look without the mutex
  std::thread thread;

  void loop() {
    Spin spin;
    MutexLock lock(mutex);
    for (;;) {
      if (!called) {
        lock.unlock();
        spin.until([&] { return called.load(std::memory_order_acquire); });
        lock.lock();
      }
      work.wait(lock, [&] { return closing || !jobs.empty(); });
      if (jobs.empty()) break;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      called = closing || !jobs.empty();
      lock.unlock();
      job();
      job = nullptr;  // what it holds goes before the lock is taken
      lock.lock();
    }
    ended = true;
    over.notify_all();
  }
};

Worker::Worker(std::string name) : state_(std::make_shared<State>()) {
  try {
    state_->thread = std::thread([state = state_, name = name.substr(0, 15)] {
      pthread_setname_np(pthread_self(), name.c_str());
      is_worker = true;
      state->loop();
    });
  } catch (const std::system_error& error) {  // its what() is another with each C++ library
    throw Error(ErrorCode::kInternal, error.code().message());
  }
}

Worker::~Worker() { stop(kNever); }

void Worker::post(std::function<void()> job) {
  const std::shared_ptr<State> state = state_;  // the job may end this worker before its thread is notified
  {
    MutexLock lock(state->mutex);
    state->jobs.push_back(std::move(job));
    state->called = true;
  }
  state->work.notify_one();  // not with the lock held: the thread would wake only to wait for it
}

void Worker::run(const std::function<void()>& job) {
  if (is_current()) return job();
  struct Outcome {
    Mutex mutex;
    CondVar changed;
    bool done = false;
    std::optional<Error> error;
  } outcome;
  post([&] {
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
  outcome.changed.wait(lock, [&] { return outcome.done; });
  if (outcome.error) throw Error(*outcome.error);
}

bool Worker::is_current() const noexcept { return state_ && state_->thread.get_id() == std::this_thread::get_id(); }

bool Worker::on_some_worker() noexcept { return is_worker; }

bool Worker::stop(Nanoseconds until) {
  if (!state_) return true;
  const std::shared_ptr<State> state = std::move(state_);
  state_ = nullptr;
  BlockingScope blocking;  // before the lock: whatever it takes back is taken after the lock is gone
  MutexLock lock(state->mutex);
  state->closing = true;
  state->called = true;
  state->work.notify_all();
  if (state->thread.get_id() == std::this_thread::get_id()) {  // its own end cannot be waited for
    state->thread.detach();
    return true;
  }
  const auto ended = [&] { return state->ended; };
  if (until == kNever) {
    state->over.wait(lock, ended);
  } else if (!state->over.wait_until(lock, to_time_point(until), ended)) {
    state->thread.detach();
    return false;
  }
  lock.unlock();
  state->thread.join();
  return true;
}

}  // namespace hami
