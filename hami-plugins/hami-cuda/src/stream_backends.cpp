// SyncTensor, StreamGuard and StreamPool: what happens to results at the end of a stream, and a choice of streams.
#include <condition_variable>

#include "cuda_backend.hpp"

namespace hami_cuda {
namespace {

// Runs the item in its brackets, or is the last one of an S; then the stream of the instance has all of the results.
class StreamEnd : public CudaBackend {
 public:
  static constexpr std::uint32_t kMaxChildren = 1;

 protected:
  using CudaBackend::CudaBackend;

 private:
  virtual void finish() = 0;

  void run(hami::Batch batch) final {
    if (children().empty())
      for_each(batch, [&](const hami::Dict& item) { item["result"] = data_of(item, name()); });
    else
      children().front().forward(batch);
    for_each(batch, [&](const hami::Dict& item) {
      if (const std::optional<hami::Value> result = item.find("result")) order(*result);
    });
    finish();
  }

  // Makes the stream wait for results that another package, or another instance, made on a stream of its own.
  void order(const hami::Value& result) {
    map_parts(result, [&](const hami::Value& part) {
      if (part.kind() == HAMI_TENSOR || part.kind() == HAMI_OPAQUE) try {
          any_tensor(part);
        } catch (const hami::Error& error) {
          if (error.code() != HAMI_DATA_TYPE) throw;  // it is not a tensor
        }
      return hami::Value();
    });
  }
};

class SyncTensor final : public StreamEnd {
 public:
  SyncTensor() : StreamEnd("SyncTensor") {}

 private:
  void setup(const hami::Params& params) override {
    const std::string wait = params.get<std::string>("wait");
    waiter_ = std::make_unique<Waiter>(wait == "spin" ? Wait::kSpin : wait == "sleep" ? Wait::kSleep : Wait::kAuto);
  }
  void finish() override { stream()->wait(*waiter_); }

  std::unique_ptr<Waiter> waiter_;
};

class StreamGuard final : public StreamEnd {
 public:
  StreamGuard() : StreamEnd("StreamGuard") {}

 private:
  void finish() override { stream()->hold_back(kDefaultStream); }
};

class StreamPool final : public CudaBackend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT;

  StreamPool() : CudaBackend("StreamPool") {}

 private:
  void setup(const hami::Params& params) override {
    const std::int64_t count = params.get<std::int64_t>("n");
    if (count < 1)
      throw CudaError(HAMI_FAILED_PRECONDITION, "StreamPool: \"n\" must be at least 1, got " + std::to_string(count));
    for (std::int64_t i = 0; i < count; ++i) free_.push_back(device().new_stream());
  }

  void run(hami::Batch) override {
    throw hami::Error(HAMI_FAILED_PRECONDITION, "StreamPool runs the dependency of With: write With[StreamPool(2),X]");
  }

  void forward_with_dep_(hami::Batch batch, const hami::Child& dependency) override {
    on_device([&] {
      const Borrowed stream(*this);
      const StreamScope scope(stream.get());
      dependency.forward(batch);
    });
  }

  // A free stream, for the lifetime of this object; waits for one.
  class Borrowed {
   public:
    explicit Borrowed(StreamPool& pool) : pool_(pool) {
      std::unique_lock<std::mutex> lock(pool.mutex_);
      pool.returned_.wait(lock, [&] { return !pool.free_.empty(); });
      stream_ = std::move(pool.free_.back());
      pool.free_.pop_back();
    }
    ~Borrowed() {
      const std::lock_guard<std::mutex> lock(pool_.mutex_);
      pool_.free_.push_back(std::move(stream_));
      pool_.returned_.notify_one();
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    const std::shared_ptr<Stream>& get() const noexcept { return stream_; }

   private:
    StreamPool& pool_;
    std::shared_ptr<Stream> stream_;
  };

  std::mutex mutex_;  // guards free_
  std::condition_variable returned_;
  std::vector<std::shared_ptr<Stream>> free_;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(hami_cuda::SyncTensor, "SyncTensor",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
              "; wait: str = 'auto' {auto,spin,sleep} 'auto: spin for 50 µs, then sleep; spin: keep a core busy; "
              "sleep: free it at once'",
              "Wait until the work of this instance on the device is done.\n"
              "\n"
              "S[DecodeTensor,ResizeTensor,SyncTensor], or SyncTensor[X]\n"
              "\n"
              "The results can then be used at once, on any stream.");
HAMI_REGISTER(hami_cuda::StreamGuard, "StreamGuard",
              "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
              "Give the instance a stream, and make the default stream wait for its results; the CPU does not wait.\n"
              "\n"
              "S[DecodeTensor,ResizeTensor,StreamGuard], or StreamGuard[X]\n"
              "\n"
              "Work that other libraries submit to the default stream afterwards sees complete results.");
HAMI_REGISTER(hami_cuda::StreamPool, "StreamPool",
              "n: int 'number of streams, at least 1'"
              "; device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'",
              "Run each call of X on one of n streams; wait for a free stream if all are in use.\n"
              "\n"
              "With[StreamPool(2),X]\n"
              "\n"
              "The backends of this package in X then work on that stream. Results are ordered with later work on any "
              "stream.");
