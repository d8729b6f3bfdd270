// The runs of ONNX Runtime, and the thread that ends those for which no caller waits any more.
#pragma once

#include "library.hpp"

namespace hami_onnx {

// The callers of a run. `wait` is called on another thread while the run lasts.
struct Callers {
  bool (*wait)(const void* group);
  const void* group;
};

// The options of one run at a time: its terminate flag is in them.
struct RunOptions {
  OrtRunOptions* handle;
  const Library* library;
  const Callers* callers = nullptr;
  bool is_ended = false;  // the flag is set
  RunOptions* previous = nullptr;
  RunOptions* next = nullptr;  // in the list of the watcher, or of a pool
};

// The options that the runs of one session use, one run after another.
class RunPool {
 public:
  // `shrinks`: each run ends by freeing the memory that the session's arena does not need.
  RunPool(const Library& library, bool shrinks) noexcept : library_(library), shrinks_(shrinks) {}
  ~RunPool();
  RunPool(const RunPool&) = delete;
  RunPool& operator=(const RunPool&) = delete;

 private:
  friend class Run;
  RunOptions* make() const;

  const Library& library_;
  const bool shrinks_;
  RunOptions* idle_ = nullptr;  // guarded by the mutex of the watcher
};

// One run, from its start to its end. ONNX Runtime fails it before the next operator if no caller waits any more.
class Run {
 public:
  Run(RunPool& pool, const Callers& callers);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const OrtRunOptions* options() const noexcept { return options_->handle; }

 private:
  RunPool& pool_;
  RunOptions* options_ = nullptr;
};

}  // namespace hami_onnx
