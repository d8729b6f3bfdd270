// NodeStats: the counts and times of one node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/api.hpp"

namespace hami {

// LaneName: the three classes of service of a request, by its priority.
// In the order in which a node serves them.
enum LaneName : std::size_t { kUrgentLane, kHighLane, kNormalLane, kLanes };

inline constexpr std::uint8_t kHighPriority = 254;
inline constexpr std::uint8_t kUrgentPriority = 255;
inline constexpr const char* kLaneNames[kLanes] = {"urgent", "high", "normal"};

constexpr LaneName lane_of(std::uint8_t priority) noexcept {
  return priority == kUrgentPriority ? kUrgentLane : priority == kHighPriority ? kHighLane : kNormalLane;
}

// Counters of one node since its pipe was built. Its instances write them, each request and batch before the callers of the
// batch continue; any thread reads them at any time.
// Each submitted request ends in exactly one of the five outcomes, or is still waiting or running.
struct RequestStats {
  using Counter = std::atomic<std::uint64_t>;

  Counter submitted{0};
  Counter completed{0};
  Counter failed{0};
  Counter rejected{0};   // refused before it ran: no place, no time, or the pipe was closed
  Counter expired{0};    // its deadline passed
  Counter cancelled{0};  // its caller gave it up
  Counter running{0};    // inside a batch now
};

// What the batching policy has decided.
struct PolicyStats {
  enum Waits : std::uint64_t { kUnknown, kOff, kOn };
  enum Trial : std::uint64_t { kNone, kReturnWaits, kMoreInstances, kFewerInstances };

  std::atomic<Waits> return_waits{kUnknown};  // batches are held for returning callers
  std::atomic<double> return_wait_gain{0};    // the part of the latency that this saves, by trials
  std::atomic<bool> gain_known{false};
  std::atomic<Trial> trial{kNone};           // of this alternative, which runs now
  std::atomic<double> cost{0};               // of all items so far, of a node with `request_cost`
  std::atomic<double> padded_cost{0};        // the same if each cost as much as the largest of its batch
  std::atomic<Nanoseconds> capped_until{0};  // until then, high traffic caps batches with normal requests
};

struct NodeStats : RequestStats {
  RequestStats lanes[kNormalLane];  // of the urgent and the high requests; the others are normal
  Counter dropped{0};               // of the rejected: left a full queue for a newer one
  Counter queued_bytes{0};          // of the values of the requests that wait now, if the node has a memory_limit
  Counter retried{0};               // ran again alone after its batch failed

  // Batches.
  Counter batches{0};
  Counter batch_items{0};     // items in those batches
  Counter inline_batches{0};  // batches that ran on a caller's thread
  Counter model_calls{0};     // calls of forward, retries included
  Counter compute_ns{0};      // time inside forward, summed over instances

  // Why a batch taken from the queue started; the first that holds: it or the queue was full; it left requests in the queue;
  // a wait of the instance was over; it emptied the queue. Each batch is counted in one of these, or is inline.
  Counter closed_full{0}, closed_target_size{0}, closed_timeout{0}, closed_queue_empty{0};

  // The learned time of a batch, overhead + per_item * items; and how many items the next one should have. 0: unknown.
  Counter batch_overhead_ns{0};
  Counter per_item_ns{0};
  Counter target_batch_size{0};
  Counter instances_in_use{0};  // how many run at a time, if that is learned; else 0
  PolicyStats policy;
};

}  // namespace hami
