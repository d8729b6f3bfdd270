// NativeCaller: the object behind hami/caller.h, by which native threads call a pipe.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "plugin/api.hpp"  // before hami/caller.h, which includes hami/abi.h

#include "hami/caller.h"
#include "pipe/api.hpp"

namespace hami::bind {

namespace py = pybind11;

class NativeCaller final : public hami_caller, public Counted {
 public:
  explicit NativeCaller(std::weak_ptr<PipeState> pipe);

  // Requests that start from now on go to this pipe.
  void set_pipe(std::weak_ptr<PipeState> pipe);
  // Throws Error if the pipe is closed or does not exist any more.
  Ref<Call> submit(Dict request, Nanoseconds timeout, hami_submit_done done, void* data);

 private:
  Mutex mutex_;
  std::weak_ptr<PipeState> pipe_ HAMI_GUARDED_BY(mutex_);
};

// A capsule that owns a reference.
py::capsule to_capsule(Ref<NativeCaller> caller);

[[gnu::cold]] void register_native_values(py::module_& module);

}  // namespace hami::bind
