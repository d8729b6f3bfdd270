// The plugin ABI as this core serves it: hami/abi.h with everything up to its newest minor version.
#pragma once

#define HAMI_ABI_USE_MINOR 1
#include "hami/abi.h"
