// A model for the native door, without a pipe: its result is the input.
#pragma once

#include <hami/caller.h>

namespace hami::fuzz {

hami_caller* identity() noexcept;   // never released
hami_error* fill(hami_host* host);  // of the core

}  // namespace hami::fuzz
