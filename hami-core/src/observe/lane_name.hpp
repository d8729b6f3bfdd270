// LaneName: the three classes of service of a request, by its priority.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hami {

// In the order in which a node serves them.
enum LaneName : std::size_t { kUrgentLane, kHighLane, kNormalLane, kLanes };

inline constexpr std::uint8_t kHighPriority = 254;
inline constexpr std::uint8_t kUrgentPriority = 255;
inline constexpr const char* kLaneNames[kLanes] = {"urgent", "high", "normal"};

constexpr LaneName lane_of(std::uint8_t priority) noexcept {
  return priority == kUrgentPriority ? kUrgentLane : priority == kHighPriority ? kHighLane : kNormalLane;
}

}  // namespace hami
