// hami.types.RequestStore: values by request and key.
#pragma once

#include "gil.hpp"

namespace hami::bind {

[[gnu::cold]] void register_request_store(py::module_& module);

}  // namespace hami::bind
