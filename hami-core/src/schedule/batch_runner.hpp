// One batch on one instance: hooks, retries, counters. Each request has an outcome of its own afterwards.
#pragma once

#include <string>

#include "observe/node_stats.hpp"
#include "backend/init.hpp"

namespace hami {

class BatchRunner {
 public:
  BatchRunner(std::string node, NodeStats& stats) : node_(std::move(node)), stats_(stats) {}

  // The brackets of the dispatcher: a hook on each request before it is gathered, and one on the gathered batch.
  void set_hooks(Init& init);
  // Whether the requests of a batch that failed as a whole are tried again, each alone.
  void set_isolate(bool isolate) noexcept { isolate_ = isolate; }

  // Whether `admit` takes microseconds and never blocks.
  bool admits_without_blocking() const noexcept { return !before_gathering_ || before_gathering_->traits().non_blocking; }
  // Everything that can be refused is refused before anything is queued. False: it has failed.
  bool admit(Request& request, std::size_t max_items) noexcept;
  // Returns what it took. Never throws: what the backend throws becomes the outcome.
  Nanoseconds run(Backend& instance, Batch batch) noexcept;
  // Counts what failed before it was run, and tells those who asked.
  void complete_rejected(Batch batch) noexcept;

 private:
  void forward(Backend& instance, Batch batch);
  void count_outcomes(Batch batch) noexcept;

  std::string node_;
  NodeStats& stats_;
  bool isolate_ = true;
  BackendPtr before_gathering_;  // PreCat
  BackendPtr before_instance_;   // CatedHandle
};

}  // namespace hami
