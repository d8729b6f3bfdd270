// The room `plugin`. The host side of the plugin ABI.
#pragma once

#include "plugin/abi.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/library.hpp"
