// What a node has done since its pipe was built. Written by its instances, read by anyone, at any time.
#pragma once

#include <atomic>
#include <cstdint>

namespace hami {

struct NodeStats {
  std::atomic<std::uint64_t> requests{0};  // that reached an outcome at this node
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> batches{0};   // calls of forward
  std::atomic<std::uint64_t> items{0};     // in those batches
  std::atomic<std::uint64_t> retried{0};   // requests tried again alone
  std::atomic<std::uint64_t> busy_ns{0};   // time inside forward, summed over instances
  std::atomic<std::uint64_t> inline_runs{0};  // batches run on the caller's thread
  // Why batches taken from the queue held no more: full; more would not have paid; company did not come; nothing waited.
  std::atomic<std::uint64_t> closed_full{0}, closed_chosen{0}, closed_patience{0}, closed_drained{0};
  // What a batch costs, as far as that was learned; and how many items are taken of many that wait (0: not known yet).
  std::atomic<std::uint64_t> fixed_ns{0};
  std::atomic<std::uint64_t> item_ns{0};
  std::atomic<std::uint64_t> aim{0};
};

}  // namespace hami
