// Backends that call another one as its class asks for.
#include "backend/thread_modes.hpp"

#include <utility>

namespace hami {

// ---- DedicatedThread: passes every call to the thread, also the close.

namespace {

// Counts the detached inits of this process.
class DetachedInit {
 public:
  DetachedInit() : counter_(counters.get()) {
    MutexLock lock(counter_.mutex);
    ++counter_.count;
  }
  ~DetachedInit() {
    MutexLock lock(counter_.mutex);
    --counter_.count;
    counter_.decreased.notify_all();
  }
  DetachedInit(const DetachedInit&) = delete;
  DetachedInit& operator=(const DetachedInit&) = delete;

  static bool wait_for_none(Nanoseconds until) {
    Counter& counter = counters.get();
    return wait_for(counter.mutex, counter.decreased, until, [&] {
      counter.mutex.assert_held();
      return counter.count == 0;
    });
  }

 private:
  struct Counter {
    Mutex mutex;
    CondVar decreased;
    std::size_t count HAMI_GUARDED_BY(mutex) = 0;
  };
  static PerProcess<Counter> counters;

  Counter& counter_;
};
PerProcess<DetachedInit::Counter> DetachedInit::counters;

// An init on a dedicated thread. It owns what it uses, so its caller may leave it (`detach`).
class InitTask {
 public:
  // `pipe` owns the plan that `build` reads.
  InitTask(std::shared_ptr<void> pipe, BackendFactory build) : pipe_(std::move(pipe)), build_(std::move(build)) {}

  void run() {
    std::shared_ptr<void> pipe = std::move(pipe_);  // released last
    BackendPtr built;
    std::optional<Error> error;
    try {
      built = build_();
    } catch (...) {
      error = current_error();
    }
    build_ = nullptr;
    MutexLock lock(mutex_);  // released before a detached backend is closed here
    if (detached_) return;
    pipe = nullptr;  // the caller has it
    built_ = std::move(built);
    error_ = std::move(error);
    done_ = true;
    changed_.notify_all();
  }

  // False: the init is not done at that moment. Throws if interrupted.
  bool wait(Nanoseconds until) {
    return wait_for(mutex_, changed_, until, [&] {
      mutex_.assert_held();
      return done_;
    });
  }

  // The backend that a finished init built.
  BackendPtr take() {
    MutexLock lock(mutex_);
    HAMI_ASSERT(done_);
    if (error_) throw Error(*error_);
    return std::move(built_);
  }

  // False: the init is done already.
  bool detach() noexcept {
    MutexLock lock(mutex_);
    detached_ = !done_;
    return detached_;
  }

 private:
  std::shared_ptr<void> pipe_;
  BackendFactory build_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ HAMI_GUARDED_BY(mutex_) = false;
  bool detached_ HAMI_GUARDED_BY(mutex_) = false;
  BackendPtr built_ HAMI_GUARDED_BY(mutex_);
  std::optional<Error> error_ HAMI_GUARDED_BY(mutex_);
};

// Builds a backend on `worker`. `close` gets what an init built that ended just after its caller gave up.
BackendPtr build_on(Worker& worker, Nanoseconds until, const Error& expired, const std::string& label,
                    PipeContext& context, BackendFactory build, const std::function<void(BackendPtr)>& close) {
  const auto task = std::make_shared<InitTask>(context.shutdown.pipe(), std::move(build));
  worker.post([task] { task->run(); });
  std::optional<Error> gave_up;
  try {
    if (!task->wait(until)) gave_up = expired;
  } catch (...) {
    gave_up = current_error();
  }
  if (!gave_up) return task->take();
  const auto detached_init = std::make_shared<DetachedInit>();
  if (task->detach()) {
    context.shutdown.detach_init(detached_init);
    worker.stop(kNoWait);
    throw gave_up->with_note("init of " + label + ", which continues and is closed when it ends");
  }
  try {
    close(task->take());
  } catch (const Error&) {  // it failed: there is nothing to close
  }
  throw Error(*gave_up);
}

}  // namespace

bool wait_for_detached_inits(Nanoseconds until) { return DetachedInit::wait_for_none(until); }

BackendPtr build_until(Nanoseconds until, const Error& expired, const std::string& label, PipeContext& context,
                       BackendFactory build) {
  Worker worker("hami-init", &context);
  return build_on(worker, until, expired, label, context, std::move(build), [](BackendPtr) {});
}

DedicatedThread::DedicatedThread(const std::string& label, const std::string& node,
                                 std::shared_ptr<PipeContext> context, BackendFactory build)
    : context_(std::move(context)),
      name_(label + " of node \"" + node + "\""),
      inner_(std::make_shared<BackendPtr>()),
      worker_(label, context_.get(), [inner = inner_] { *inner = nullptr; }) {
  try {
    *inner_ = build_on(worker_, kNever, Error(ErrorCode::kInternal, ""), label, *context_, std::move(build),
                       [this](BackendPtr built) { *inner_ = std::move(built); });
  } catch (...) {
    stop_worker();
    throw;
  }
}

void DedicatedThread::stop_worker() noexcept {
  const UninterruptibleScope must_finish;
  if (!worker_.stop(context_->shutdown.close_until())) context_->shutdown.report_abandoned(name_);
}

DedicatedThread::~DedicatedThread() { stop_worker(); }

void DedicatedThread::forward_(Batch batch) {
  worker_.run([&, caller = ExecutionFrame::on_this_thread()] {
    const AdoptFrame adopted(caller);
    inner().forward(batch);
  });
}

void DedicatedThread::forward_with_dep_(Batch batch, Backend& dependency) {
  worker_.run([&, caller = ExecutionFrame::on_this_thread()] {
    const AdoptFrame adopted(caller);
    inner().forward_with_dep(batch, dependency);
  });
}

void DedicatedThread::inject_dependency_(const BackendPtr& dependency) {
  worker_.run([&] { inner().inject_dependency(dependency); });
}

// ---- SerializedBackend: a mutex that detects recursion and never waits while the GIL is held.

class SerializedBackend::CallScope {
 public:
  explicit CallScope(SerializedBackend& backend) : backend_(backend) {
    const std::thread::id self = std::this_thread::get_id();
    if (backend.holder_.load(std::memory_order_relaxed) == self)
      throw Error(ErrorCode::kReentrantCall, backend.label() + " called itself; it runs one call at a time");
    // This scope holds it: the destructor unlocks.
    if (!backend.mutex_.try_lock()) {
      BlockingScope blocking;
      backend.mutex_.lock();  // as above, after waiting
    }
    backend.holder_.store(self, std::memory_order_relaxed);
  }
  ~CallScope() {
    backend_.holder_.store({}, std::memory_order_relaxed);
    backend_.mutex_.unlock();  // taken by the constructor
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  SerializedBackend& backend_;
};

void SerializedBackend::forward_(Batch batch) {
  const CallScope scope(*this);
  inner_->forward(batch);
}

void SerializedBackend::forward_with_dep_(Batch batch, Backend& dependency) {
  const CallScope scope(*this);
  inner_->forward_with_dep(batch, dependency);
}

}  // namespace hami
