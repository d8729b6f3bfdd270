// The room `base`. Time, reference counts, locks, forks, the log, near names, assertions.
#pragma once

#include "base/assert.hpp"
#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/near.hpp"
#include "base/process.hpp"
