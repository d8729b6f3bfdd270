// The streams and events of the fake driver. With FAKE_CUDA_LATE=1, work runs as late as CUDA allows: when someone waits
// for it, on the CPU or in another stream. Otherwise it runs when it is submitted.
#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "../../src/cuda_api.hpp"

namespace hami_cuda {

struct LateEvent {
  CUstream stream = nullptr;
  std::size_t place = 0;  // of the work of the stream that must be done
};

class LateStreams {
 public:
  static LateStreams& get() {
    static LateStreams& streams = *new LateStreams;
    return streams;
  }
  static bool is_late() {
    const char* const text = std::getenv("FAKE_CUDA_LATE");
    return text && *text == '1';
  }

  void submit(CUstream stream, std::function<void()> work) {
    {
      const std::lock_guard<std::recursive_mutex> lock(mutex_);
      Queue& queue = queues_[stream];
      if (is_late()) return queue.work.push_back(std::move(work));
      run(stream, queue.done + queue.work.size());  // the work of a time when it ran late
    }
    // Without the lock: work in Python waits for the GIL, and a thread that has the GIL may ask for an event here.
    work();
  }
  void record(LateEvent& event, CUstream stream) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    event = {stream, queues_[stream].done + queues_[stream].work.size()};
  }
  // Later work of `stream` runs after the event.
  void hold_back(CUstream stream, LateEvent event) {
    submit(stream, [this, event] { run(event.stream, event.place); });
  }
  bool is_done(LateEvent event) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    return queues_[event.stream].done >= event.place;
  }
  void wait(LateEvent event) { run(event.stream, event.place); }
  void wait(CUstream stream) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    run(stream, queues_[stream].done + queues_[stream].work.size());
  }
  void wait_for_all() {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    for (auto& [stream, queue] : queues_) run(stream, queue.done + queue.work.size());
  }

 private:
  struct Queue {
    std::deque<std::function<void()>> work;
    std::size_t done = 0;
  };

  void run(CUstream stream, std::size_t place) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    Queue& queue = queues_[stream];
    while (queue.done < place && !queue.work.empty()) {
      const std::function<void()> next = std::move(queue.work.front());
      queue.work.pop_front();
      next();
      ++queue.done;
    }
  }

  std::recursive_mutex mutex_;  // guards queues_
  std::map<CUstream, Queue> queues_;
};

}  // namespace hami_cuda
