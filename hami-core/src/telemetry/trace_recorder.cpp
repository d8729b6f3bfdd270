// Recorder: the thread that empties the rings into an output.
#include "telemetry/trace_recorder.hpp"

#include <memory>
#include <new>
#include <utility>

#include "observe/api.hpp"
#include "telemetry/trace_output.hpp"

namespace hami::trace {
namespace {

constexpr Nanoseconds kDrainPeriod = 4'000'000;  // a thread fills its ring in this time at 2 million events per second

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
    }
    for (const std::shared_ptr<Ring>& ring : rings()) {
      ring->index.reset();
      ring->take_lost();
    }
    threads_ = 0;
    output_ = std::move(output);
    begin_sampling(options.last > 0, options.slow);
    const std::uint32_t session = begin_session();
    worker->post([this, session] { loop(session); });
    worker_ = std::move(worker);
    set_active(true);
  }

  Summary stop() {
    MutexLock stopping(control_);
    if (!worker_) return {};
    set_active(false);
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
      set_active(false);
      fail(current_error().message());
    }
  }

  void drain(std::uint32_t session) {
    begin_period();
    std::uint64_t events = 0, lost = 0;
    for (const std::shared_ptr<Ring>& ring : rings()) {
      const bool ended = ring->ended();
      ring->drain(session, [&](const Event& event) {
        if (!ring->index) ring->index = threads_++;
        output_->add(event, *ring->index, ring->thread());
        ++events;
      });
      lost += ring->take_lost();
      if (ended) remove_ring(ring);
    }
    output_->flush(lost, now());
    MutexLock lock(mutex_);
    summary_.events += events;
    summary_.lost += lost;
    summary_.written = output_->written();
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
};

PerProcess<Recorder>& recorder = *new PerProcess<Recorder>;

}  // namespace

void start(const Options& options) { recorder.get().start(options); }

Summary stop() { return recorder.get().stop(); }

}  // namespace hami::trace
