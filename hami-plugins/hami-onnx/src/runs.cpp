// Watches all runs of the process from one thread.
#include "runs.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace hami_onnx {
namespace {

// How late a run is ended. While there are runs, the thread looks so often, which takes some microseconds each time.
constexpr std::chrono::milliseconds kPeriod{10};
// After so many looks without a run the thread waits for one, so that an idle process has no wake-ups.
constexpr int kLooksBeforeRest = 100;

bool succeeded(const Api& api, OrtStatus* status) noexcept {
  if (status) api.ReleaseStatus(status);
  return !status;
}

class Watcher {
 public:
  std::mutex mutex;  // guards the members, and the idle options of pools

  // Both with the mutex held.
  void add(RunOptions& run) noexcept {
    run.previous = nullptr;
    run.next = first_;
    if (first_) first_->previous = &run;
    first_ = &run;
    has_started_ = true;
    if (is_resting_) woken_.notify_one();
    if (!has_thread_) start();
  }
  void remove(RunOptions& run) noexcept {
    (run.previous ? run.previous->next : first_) = run.next;
    if (run.next) run.next->previous = run.previous;
  }

 private:
  // The thread gets no signals: they are for the threads of the program. Without a thread, no run ends early.
  void start() noexcept {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { watch(); }).detach();  // it lives as long as the process, as this object does
      has_thread_ = true;
    } catch (const std::system_error&) {  // the next run tries again
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void watch() {
    std::unique_lock lock(mutex);
    for (;;) {
      is_resting_ = true;
      woken_.wait(lock, [this] { return first_ != nullptr; });
      is_resting_ = false;
      for (int looks = 0; looks < kLooksBeforeRest; ++looks) {
        has_started_ = false;
        lock.unlock();
        std::this_thread::sleep_for(kPeriod);
        lock.lock();
        if (has_started_ || first_) looks = 0;
        for (RunOptions* run = first_; run; run = run->next) end_if_left(*run);
      }
    }
  }

  static void end_if_left(RunOptions& run) noexcept {
    if (run.is_ended || run.callers->wait(run.callers->group)) return;
    run.is_ended = succeeded(run.library->api(), run.library->api().RunOptionsSetTerminate(run.handle));
  }

  std::condition_variable woken_;
  RunOptions* first_ = nullptr;
  bool has_started_ = false;  // a run, since the last look
  bool is_resting_ = false;
  bool has_thread_ = false;
};

// Never destroyed, because its thread outlives main().
Watcher*& watcher() {
  static Watcher* current = [] {
    // A forked child has no such thread, and a thread of the parent may hold the mutex.
    pthread_atfork(nullptr, nullptr, [] { watcher() = new Watcher; });
    return new Watcher;
  }();
  return current;
}

}  // namespace

RunPool::~RunPool() {
  while (const std::unique_ptr<RunOptions> options{idle_}) {
    idle_ = options->next;
    library_.api().ReleaseRunOptions(options->handle);
  }
}

RunOptions* RunPool::make() const {
  const Api& api = library_.api();
  Owned<OrtRunOptions> options(api.ReleaseRunOptions);
  library_.check(api.CreateRunOptions(options.out()));
  library_.check(api.RunOptionsSetRunLogSeverityLevel(options.get(), kOnlyFatal));
  if (shrinks_) library_.check(api.AddRunConfigEntry(options.get(), "memory.enable_memory_arena_shrinkage", "cpu:0"));
  auto made = std::make_unique<RunOptions>(RunOptions{options.get(), &library_});
  options.release();
  return made.release();
}

Run::Run(RunPool& pool, const Callers& callers) : pool_(pool) {
  Watcher& all = *watcher();
  std::unique_lock lock(all.mutex);
  if (pool_.idle_) {
    options_ = pool_.idle_;
    pool_.idle_ = options_->next;
  } else {
    lock.unlock();
    options_ = pool_.make();
    lock.lock();
  }
  options_->callers = &callers;
  all.add(*options_);
}

Run::~Run() {
  Watcher& all = *watcher();
  const std::lock_guard lock(all.mutex);
  all.remove(*options_);
  if (options_->is_ended) {
    const Api& api = pool_.library_.api();
    if (!succeeded(api, api.RunOptionsUnsetTerminate(options_->handle))) {
      api.ReleaseRunOptions(options_->handle);  // they would end the next run too
      delete options_;
      return;
    }
    options_->is_ended = false;
  }
  options_->next = pool_.idle_;
  pool_.idle_ = options_;
}

}  // namespace hami_onnx
