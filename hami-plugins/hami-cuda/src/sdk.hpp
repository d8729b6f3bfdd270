// The SDK of hami-core with tensors in device memory and streams, which are of ABI 1.1.
#pragma once

#define HAMI_ABI_USE_MINOR 1
#define HAMI_ABI_MIN_MINOR 1
#include <hami/backend.hpp>
#include <hami/c_library.hpp>
#include <hami/function_table.hpp>
#include <hami/model_keys.hpp>
