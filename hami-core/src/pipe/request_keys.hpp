// The keys of a request that the pipe reads: parts, visits, priority, timeout and deadline.
#pragma once

#include "request/api.hpp"

namespace hami {

// The queue under the key `parts` of a request becomes Request::parts. Fails the request and returns false if it is closed.
bool take_parts(Request& request) noexcept;

// The record under the key `hami.visits`, of a caller that wants to know at which nodes its request was, becomes Request::visits.
void take_visits(Request& request, Nanoseconds moment) noexcept;

// Reads the priority of a request, and its deadline: the earliest of `limit`, of its own keys, and of the deadline of the request
// for which a backend makes this one. Fails the request and returns false if a value is invalid.
bool read_urgency(Request& request, Nanoseconds limit, Nanoseconds moment);

}  // namespace hami
