// Pacer: when the instances of a node that share a device start their batches. Batches that start together end together, and
// then the device has no work until the callers return. So starts are evenly spaced: the usual time of a batch, divided by the
// number of instances.
#pragma once

#include <cstddef>

#include "base/clock.hpp"
#include "schedule/policy_constants.hpp"

namespace hami {

class Pacer {
 public:
  void record_start(Nanoseconds moment) noexcept { started_ = moment; }
  void record_batch(Nanoseconds took) noexcept {
    took_ = took_ > 0 ? took_ + (took - took_) / static_cast<Nanoseconds>(policy::kSmooths) : took;
  }
  // The earliest start of the next batch while another one runs.
  Nanoseconds next_start(std::size_t instances) const noexcept {
    return started_ + took_ / static_cast<Nanoseconds>(instances);
  }

 private:
  Nanoseconds started_ = 0;  // when the last batch of any instance started
  Nanoseconds took_ = 0;     // recent mean time of a batch
};

}  // namespace hami
