// Every constant of the batching policy, with its unit and the reason for its value.
#pragma once

#include <cstddef>

#include "base/clock.hpp"

namespace hami::policy {

// A gain below this fraction is not worth a larger batch, another policy or another instance. Repeated measurements of one
// batch size on an idle machine differ by about as much.
constexpr double kNegligible = 0.02;
// An estimate may be wrong by this factor either way: a return time comes from few samples, and another process may delay a batch.
constexpr int kUncertain = 2;
// Observations in a moving mean: few enough to follow a change of load, enough to reduce chance by two thirds (1 / sqrt(8)).
constexpr std::size_t kSmooths = 8;
// Observations that are remembered: return times; runs of other sizes after which a size counts half; batches between two
// samples of another size; rounds between two trials. The cost of what happens once in so many is below kNegligible.
constexpr std::size_t kMemory = 64;
// Weight of a batch that was slower than usual in the estimate of its size; of a faster one it is 2 / kSmooths. A machine that is
// busy with other work makes batches slower and never faster, so the estimate stays near the fastest.
constexpr double kSlower = 0.05;
// Mean absolute deviations between the mean time of a batch and the time that hardly any exceeds: 3.2 standard deviations of a
// normal distribution. TCP computes its retransmission timeout in the same way (RFC 6298).
constexpr double kDeviations = 4;
// A batch that takes longer than so many times the estimate says no more than one that takes as long, about those that follow.
constexpr double kLongest = 4;
// Requests of a queue that are compared when not all can end in time. They are read once for each batch, which takes microseconds.
constexpr std::size_t kRivals = 1024;
// Runs that make a size known: the first allocates, compiles or captures and is ignored, and two agree.
constexpr std::size_t kKnown = 3;
// Items of the largest batch while nothing is known: a batch may gain nothing, and engines keep the memory that they allocate
// for it.
constexpr std::size_t kFirstSize = 4;
// Items of the largest batch of a node whose maximum is "auto". Its memory grows with it: 64 images of 640 x 640 pixels are
// 300 MiB as float32. An overhead that is as long as 13 items (ResNet-50 on a GPU) is 17 % of its time: more items gain little.
constexpr std::size_t kAutoMax = 64;
// Batches of a round of a trial. The first third only settles: two alternating groups of callers merge within a few batches.
constexpr std::size_t kRound = 24;
// How long high traffic is present after a high or urgent request. For requests that are rarer than this, one long batch now and
// then costs less than shorter normal batches all the time.
constexpr Nanoseconds kHighTraffic = 10'000'000'000;

}  // namespace hami::policy
