// The mailbox of hami-process with the atomic and the futex of the model.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/atomic.hpp"

namespace hami_process {
namespace std {  // what the mailbox uses of it
using ::std::int32_t;
using ::std::int64_t;
using ::std::memcpy;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_release;
using ::std::uint32_t;
template <class T>
using atomic = model::Atomic<T>;
}  // namespace std
}  // namespace hami_process

#define syscall model::futex
#include "mailbox.cpp"
#undef syscall
