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
};

}  // namespace hami
