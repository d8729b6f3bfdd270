// What all instances of this process share: the driver, and for each device its kernels, streams and pinned memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "stream.hpp"

namespace hami_cuda {

// Most bytes that are copied to one block of pinned memory to be uploaded together: the pool keeps several blocks of each size.
constexpr std::size_t kMostStaged = 32U << 20;

// Pinned host memory, which the device copies to without the CPU. Freed blocks are kept: pinning takes long.
class PinnedPool {
 public:
  explicit PinnedPool(const Device& device) : device_(device) {}
  // At least `size` bytes, aligned to 64; they return to the pool with the last copy of the pointer.
  std::shared_ptr<void> get(std::size_t size);

 private:
  const Device& device_;
  std::mutex mutex_;                                 // guards spare_
  std::map<std::size_t, std::vector<void*>> spare_;  // by size, a power of two
};

class OpenDevice {
 public:
  OpenDevice(const Driver& driver, int index, const std::string& owner);

  const Device& device() const noexcept { return device_; }
  const Kernels& kernels() const noexcept { return *kernels_; }
  PinnedPool& pinned() noexcept { return pinned_; }
  // A stream without other users. It is kept for the next caller when its last user is gone: other libraries keep memory and
  // workspaces for each stream that they have seen.
  std::shared_ptr<Stream> new_stream();
  // That of another backend, or one of another library: its owner must keep it as long as the pipe.
  std::shared_ptr<Stream> stream(std::int64_t handle);

 private:
  const Device device_;
  std::unique_ptr<const Kernels> kernels_;
  PinnedPool pinned_;
  std::mutex mutex_;  // guards what follows
  std::map<std::int64_t, std::weak_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> idle_;
};

class Runtime {
 public:
  // Starts CUDA on the first call. Throws CudaError if the driver is missing, and in a process that was forked
  // afterwards.
  static Runtime& get();
  // Throws CudaError in a process that was forked after CUDA was started.
  void check_process() const;

  const Driver& driver() const noexcept { return driver_; }
  // Opens the device on the first call; `owner` starts messages.
  OpenDevice& device(int index, const std::string& owner);

 private:
  Runtime();

  const Driver driver_;
  const int process_;
  std::mutex mutex_;  // guards devices_
  std::map<int, std::unique_ptr<OpenDevice>> devices_;
};

// The kernels, compiled when the wheel was built.
extern const char kImagePtx[];
extern const char kScoresPtx[];

}  // namespace hami_cuda
