// How long requests wait and run at one node, and how large its batches are. Its instances write, any thread reads.
#pragma once

#include "observe/backend_times.hpp"
#include "observe/histogram.hpp"

namespace hami {

struct NodeTimes {
  Histogram queue;    // of each request that ran: ns from its arrival in the queue until its batch started; inline: 0
  Histogram batch;    // of each batch: ns from its start until its end
  Histogram latency;  // of each request that ran: ns from its arrival until the end of its batch
  Histogram batch_items;  // of each batch
  BackendTimes backends;
};

}  // namespace hami
