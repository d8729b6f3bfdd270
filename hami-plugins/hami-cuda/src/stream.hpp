// A stream, and memory that is allocated and freed in its order.
#pragma once

#include "driver.hpp"

namespace hami_cuda {

// A stream of the device that is current when it is created. It does not wait for the default stream.
class Stream {
 public:
  explicit Stream(const Driver& driver) : driver_(driver) {
    driver.check(driver.api().stream_create(&stream_, kNonBlockingStream), "cannot create a stream");
  }
  ~Stream() { driver_.api().stream_destroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Driver& driver() const noexcept { return driver_; }
  CUstream raw() const noexcept { return stream_; }
  void wait() const { driver_.check(driver_.api().stream_synchronize(stream_), "work on the device failed"); }

 private:
  const Driver& driver_;
  CUstream stream_ = nullptr;
};

// Device memory. It is freed when the work that the stream got before is done, so no one has to wait for that work.
class Memory {
 public:
  Memory(const Stream& stream, std::size_t size) : stream_(stream) {
    const Driver& driver = stream.driver();
    driver.check(driver.api().allocate(&start_, size, stream.raw()),
                 "cannot allocate " + std::to_string(size) + " bytes on the device");
  }
  ~Memory() { stream_.driver().api().release(start_, stream_.raw()); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  CUdeviceptr start() const noexcept { return start_; }

 private:
  const Stream& stream_;
  CUdeviceptr start_ = 0;
};

}  // namespace hami_cuda
