// The handle of a submitted request, for the functions `cancel` and `wait_if_nested` of hami._core.
#pragma once

#include "gil.hpp"
#include "pipe/api.hpp"

namespace hami::bind {

// Returns a handle without a call. It is created before the request starts: afterwards nothing may fail.
py::object make_handle();
void put_in(const py::object& handle, Ref<Call> call) noexcept;

[[gnu::cold]] void register_submitted(py::module_& module);

}  // namespace hami::bind
