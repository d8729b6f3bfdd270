// How long requests wait and run at one node, and how large its batches are. Its instances write, any thread reads.
#pragma once

#include "observe/backend_times.hpp"
#include "observe/histogram.hpp"
#include "observe/lane_name.hpp"
#include "observe/running_threads.hpp"

namespace hami {

// Of each request that ran, in ns.
struct RequestTimes {
  Histogram queue;    // from its arrival in the queue until its batch started; inline: 0
  Histogram latency;  // from its arrival until the end of its batch
};

struct NodeTimes : RequestTimes {
  RequestTimes lanes[kNormalLane];  // of the urgent and the high requests; the others are normal
  Histogram batch;                  // of each batch: ns from its start until its end
  Histogram batch_items;            // of each batch
  RunningThreads threads;           // that run a batch now
  BackendTimes backends;
};

}  // namespace hami
