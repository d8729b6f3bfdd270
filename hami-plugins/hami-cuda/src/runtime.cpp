// Opens devices once, and keeps what their instances share.
#include "runtime.hpp"

#include <hami/abi.h>
#include <unistd.h>

namespace hami_cuda {
namespace {

constexpr std::size_t kSmallestBlock = 4096;
constexpr std::size_t kMostSpareBlocks = 8;  // of one size; more are freed

std::size_t block_size(std::size_t size) {
  std::size_t block = kSmallestBlock;
  while (block < size) block *= 2;
  return block;
}

}  // namespace

std::shared_ptr<void> PinnedPool::get(std::size_t size) {
  const std::size_t block = block_size(size);
  void* memory = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& spare = spare_[block];
    if (!spare.empty()) {
      memory = spare.back();
      spare.pop_back();
    }
  }
  if (!memory)
    device_.driver().check(device_.api().allocate_host(&memory, block),
                           "cannot allocate " + std::to_string(block) + " bytes of pinned memory");
  return {memory, [this, block](void* freed) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::vector<void*>& spare = spare_[block];
      if (spare.size() < kMostSpareBlocks) return spare.push_back(freed);
    }
    CUcontext popped = nullptr;
    if (device_.api().context_push(device_.context()) != 0) return;
    device_.api().release_host(freed);
    device_.api().context_pop(&popped);
  }};
}

OpenDevice::OpenDevice(const Driver& driver, int index, const std::string& owner)
    : device_(driver, index, owner), pinned_(device_) {
  const CurrentDevice current(device_);
  kernels_ = std::make_unique<Kernels>(driver, kImagePtx, kScoresPtx);
}

std::shared_ptr<Stream> OpenDevice::new_stream() {
  std::unique_ptr<Stream> found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      found = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!found) found = std::make_unique<Stream>(device_);
  const std::shared_ptr<Stream> stream(found.release(), [this](Stream* returned) {
    returned->finish();
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.emplace_back(returned);
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_[stream->handle()] = stream;
  return stream;
}

std::shared_ptr<Stream> OpenDevice::stream(std::int64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::weak_ptr<Stream>& known = streams_[handle];
  std::shared_ptr<Stream> stream = known.lock();
  if (!stream) known = stream = std::make_shared<Stream>(device_, handle);
  return stream;
}

Runtime::Runtime() : process_(getpid()) {}

// Never destroyed: tensors outlive static destructors.
Runtime& Runtime::get() {
  static Runtime& runtime = *new Runtime;
  runtime.check_process();
  return runtime;
}

void Runtime::check_process() const {
  if (getpid() != process_)
    throw CudaError(HAMI_FAILED_PRECONDITION,
                    "CUDA does not work in a process that was forked after CUDA was in use; build pipes after forking, "
                    "or start processes with spawn");
}

OpenDevice& Runtime::device(int index, const std::string& owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<OpenDevice>& open = devices_[index];
  if (!open) open = std::make_unique<OpenDevice>(driver_, index, owner);
  return *open;
}

}  // namespace hami_cuda
