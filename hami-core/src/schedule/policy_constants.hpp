// Every constant of the batching policy, with its unit and the reason for its value.
#pragma once

#include <cstddef>

#include "request/api.hpp"

namespace hami::policy {

// Fractions and factors -----------------------------------------------------------------------------------------------

// A gain below this fraction is not worth a larger batch, another policy or another instance. Repeated measurements of one
// batch size on an idle machine differ by about as much.
constexpr double kNegligible = 0.02;
// An estimate may be wrong by this factor either way: a return time comes from few samples, and another process may delay a batch.
constexpr int kUncertain = 2;

// Means and times -----------------------------------------------------------------------------------------------------

// Observations in a moving mean: few enough to follow a change of load, enough to reduce chance by two thirds (1 / sqrt(8)).
constexpr std::size_t kMeanOf = 8;
// Weights of a batch in the estimate of its size. A machine that is busy with other work makes batches slower and never faster, so
// the estimate stays near the fastest: a faster batch weighs as the newest value of an exponential mean of kMeanOf values.
constexpr double kFasterWeight = 2.0 / static_cast<double>(kMeanOf);
constexpr double kSlowerWeight = 0.05;
// Runs that make a size known: the first allocates, compiles or captures and is ignored, and two agree.
constexpr std::size_t kKnown = 3;
// Mean absolute deviations between the mean time of a batch and the time that hardly any exceeds: 3.2 standard deviations of a
// normal distribution. TCP computes its retransmission timeout in the same way (RFC 6298).
constexpr double kDeviations = 4;
// A batch that takes longer than so many times the estimate says no more than one that takes as long, about those that follow.
constexpr double kLongest = 4;
// Runs of other sizes after which a size counts half in the line: it follows a change of load within some hundred batches.
constexpr double kHalfAfter = 64;
// How long an estimate rejects requests or limits batches after the last run of its size, in multiples of its time. One batch that
// corrects it costs at most 1 / (1 + 8), a ninth, of the time of an instance.
constexpr double kEstimateLasts = 8;
// It rejects requests for at most one in so many of the time that its runs took: the first runs may all be slow.
constexpr double kRejectsOneIn = 8;

// Sizes of batches ----------------------------------------------------------------------------------------------------

// Items of the largest batch while nothing is known: a batch may gain nothing, and engines keep the memory that they allocate
// for it.
constexpr std::size_t kFirstSize = 4;
// Items of the largest batch of a node whose maximum is "auto". Its memory grows with it: 64 images of 640 x 640 pixels are
// 300 MiB as float32. An overhead that is as long as 13 items (ResNet-50 on a GPU) is 17 % of its time: more items gain little.
constexpr std::size_t kAutoMax = 64;
// Batches between two samples of another size while the best size is sought: a mean of the current size is complete.
constexpr std::size_t kSearchEvery = kMeanOf;
// The same once it is found. A sample that costs twice the time, once in 64, is below kNegligible.
constexpr std::size_t kSampleEvery = 64;

// Requests of unequal cost ---------------------------------------------------------------------------------------------

// Batches before the learned times are believed, and the least standard deviation of their work, relative to its mean.
constexpr std::size_t kCostBatches = 8;
constexpr double kCostVariation = 0.05;
// A cost so many times the usual one, or that part of it, is an error of its caller or belongs to another load: the tokens of texts and
// the bytes of images spread less around their mean.
constexpr double kFarCost = 1e4;
// Weight of a batch against the next one: it counts half after 34 more, so that the times follow a change of load.
constexpr double kCostFading = 0.98;
// How long a request may be passed over, in multiples of the time that it takes alone: as a part of its time, a long one waits no
// longer than a short one. With 16, the 99th percentile of the latency of few callers is twice that of batches in order, and no more
// is done per time.
constexpr double kPatience = 4;

// Returning callers ---------------------------------------------------------------------------------------------------

// Batches whose callers are expected back; the callers of older batches have left. Batches of as many instances overlap.
constexpr std::size_t kGroups = 8;
// Return times that are remembered: their median is off by about 1 / sqrt(64), an eighth, of their spread.
constexpr std::size_t kReturnTimes = 64;

// Trials --------------------------------------------------------------------------------------------------------------

// Batches of a round of a trial. The first third only settles: two alternating groups of callers merge within a few batches.
constexpr std::size_t kRound = 24;
// Comparisons after which a trial without a sure result ends, and that its mean gain covers.
constexpr std::size_t kComparisons = 8;
// Rounds between two trials of an alternative whose result is sure, at most; a trial that costs as much as it may once in 64
// rounds is below kNegligible. After the first sure result it is half as many.
constexpr std::size_t kTrialEvery = 64;

// Deadlines and classes -----------------------------------------------------------------------------------------------

// Of the requests that cannot end in time by the learned times, admission admits one in so many, so that a node that was slow for a
// while learns that it is fast again.
constexpr std::size_t kAdmitsOneIn = 64;
// Requests of a queue that are compared when not all can end in time. They are read once for each batch, which takes microseconds.
constexpr std::size_t kRivals = 1024;
// How long high traffic is present after a high or urgent request. For requests that are rarer than this, one long batch now and
// then costs less than shorter normal batches all the time.
constexpr Nanoseconds kHighTraffic = 10'000'000'000;

}  // namespace hami::policy
