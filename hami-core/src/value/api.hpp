// The room `value`. Values, errors, dicts, tensors, and text that is safe to show.
#pragma once

#include "base/api.hpp"
#include "value/dict.hpp"
#include "value/error.hpp"
#include "value/tensor.hpp"
#include "value/value.hpp"
#include "value/visible.hpp"
