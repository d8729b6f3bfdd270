// DedicatedThread: every call goes to the thread; so does the end.
#include "backend/dedicated_thread.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/fork.hpp"
#include "sync/waiting.hpp"
#include "request/execution_frame.hpp"

namespace hami {
namespace {

// Inits that were left, counted. A process may end while some are: the counter stays.
class DetachedInit {
 public:
  DetachedInit() {
    std::lock_guard lock(counter.mutex);
    counter.generation = fork_generation();
    ++counter.count;
  }
  ~DetachedInit() {
    std::lock_guard lock(counter.mutex);
    --counter.count;
    counter.fewer.notify_all();
  }
  DetachedInit(const DetachedInit&) = delete;
  DetachedInit& operator=(const DetachedInit&) = delete;

  static bool wait_for_none(Nanoseconds until) {
    if (counter.generation != fork_generation()) return true;  // those of the parent are not here
    return wait_for(counter.mutex, counter.fewer, until, [] { return counter.count == 0; });
  }

 private:
  struct Counter {
    std::mutex mutex;  // guards count
    std::condition_variable fewer;
    std::size_t count = 0;
    std::atomic<unsigned> generation{0};
  };
  static Counter& counter;
};
DetachedInit::Counter& DetachedInit::counter = *new Counter;

// An init on a thread of its own, and what it may use: whoever waits for it may leave.
class InitTask {
 public:
  InitTask(Init init, const Plan& plan) : pipe_(init.context().pipe()), init_(std::move(init)), plan_(&plan) {}

  void run() {
    std::shared_ptr<void> pipe = std::move(pipe_);  // the last to go
    BackendPtr made;
    std::optional<Error> error;
    try {
      made = init_->make(*plan_);
    } catch (...) {
      error = current_error();
    }
    init_.reset();
    std::lock_guard lock(mutex_);  // gone before what is closed here, if nobody waits
    if (detached_) return;
    pipe = nullptr;  // whoever waits has it
    made_ = std::move(made);
    error_ = std::move(error);
    done_ = true;
    changed_.notify_all();
  }

  void wait() {
    wait_for(mutex_, changed_, kNever, [&] { return done_; });
    if (error_) throw Error(*error_);
  }

  // What was made; not before it is done.
  BackendPtr take() noexcept { return std::move(made_); }

  // False: it is done.
  bool leave() noexcept {
    std::lock_guard lock(mutex_);
    detached_ = !done_;
    return detached_;
  }

 private:
  std::shared_ptr<void> pipe_;  // which has the plan
  std::optional<Init> init_;
  const Plan* plan_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool done_ = false;
  bool detached_ = false;
  BackendPtr made_;
  std::optional<Error> error_;
};

}  // namespace

bool wait_for_detached_inits(Nanoseconds until) { return DetachedInit::wait_for_none(until); }

BackendPtr DedicatedThread::around(const Plan& plan, const Init& init) {
  auto thread = std::make_shared<DedicatedThread>();
  thread->describe(plan.label, plan.traits);
  thread->start(plan, init);
  return thread;
}

void DedicatedThread::init_(Init& init) { start(*init.items()[0].plan, init); }

void DedicatedThread::start(const Plan& plan, const Init& init) {
  context_ = init.shared_context();
  name_ = plan.label + " of node \"" + init.node() + "\"";
  worker_ = std::make_unique<Worker>(plan.label);
  const auto task = std::make_shared<InitTask>(init.on_own_thread(), plan);
  worker_->post([task] { task->run(); });
  try {
    task->wait();
    inner_ = task->take();
  } catch (...) {
    detached_ = task->leave();
    if (!detached_) {
      inner_ = task->take();  // of an init that ended just now; it is closed as always
      throw;
    }
    context_->leave(std::make_shared<DetachedInit>());
    throw current_error().with_note("init of " + plan.label + ", which goes on and is closed when it ends");
  }
}

DedicatedThread::~DedicatedThread() {
  if (!worker_) return;
  if (detached_) {
    worker_->stop(kNoWait);
    return;
  }
  // Held in one place: a std::function may be copied on its way, and the last copy could go on this thread.
  worker_->post([held = std::make_shared<BackendPtr>(std::move(inner_))] { *held = nullptr; });
  if (!worker_->stop(context_->close_until())) context_->report_abandoned(name_);
}

void DedicatedThread::forward_(Batch batch) {
  worker_->run([&, caller = ExecutionFrame::on_this_thread()] {
    const ExecutionFrame::AdoptFrame adopted(caller);
    inner_->forward(batch);
  });
}

void DedicatedThread::forward_with_dep_(Batch batch, Backend& dependency) {
  worker_->run([&, caller = ExecutionFrame::on_this_thread()] {
    const ExecutionFrame::AdoptFrame adopted(caller);
    inner_->forward_with_dep(batch, dependency);
  });
}

void DedicatedThread::inject_dependency_(const BackendPtr& dependency) {
  worker_->run([&] { inner_->inject_dependency(dependency); });
}

}  // namespace hami
