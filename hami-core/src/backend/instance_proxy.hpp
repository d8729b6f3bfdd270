// Instance proxies: backends that stand for an instance of a pipe.
#pragma once

#include <memory>
#include <string>

#include "backend/pipe_context.hpp"

namespace hami {

// A backend that passes every call to the instance of that name, which may be registered later. It does not keep the pipe alive:
// once the pipe has ended, each call throws Error(kPipeClosed). May be called on any thread; the close of the pipe waits for
// threads that do not belong to it (InstanceTable::enter).
BackendPtr make_instance_proxy(const std::shared_ptr<PipeContext>& context, std::string name);

}  // namespace hami
