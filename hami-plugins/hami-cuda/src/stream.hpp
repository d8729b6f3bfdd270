// A stream, and memory that is allocated and freed in its order.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "driver.hpp"

namespace hami_cuda {

constexpr std::int64_t kDefaultStream = 1;  // as in DLPack

// Marks a place in the work of a stream.
class Event {
 public:
  explicit Event(const Device& device) : device_(device) {
    device.driver().check(device.api().event_create(&event_, kBlockingEvent | kEventWithoutTime),
                          "cannot create an event");
  }
  ~Event() { device_.api().event_destroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(CUstream stream) {
    device_.driver().check(device_.api().event_record(event_, stream), "cannot record an event");
  }
  // Makes later work on `stream` wait for this event; the CPU does not wait.
  void hold_back(CUstream stream) const {
    device_.driver().check(device_.api().stream_wait_event(stream, event_, 0), "cannot wait for an event");
  }
  bool is_done() const {
    const CUresult result = device_.api().event_query(event_);
    if (result != kNotReady) device_.driver().check(result, "work on the device failed");
    return result == 0;
  }
  // Blocks without keeping a core busy.
  void wait() const { device_.driver().check(device_.api().event_synchronize(event_), "work on the device failed"); }

 private:
  const Device& device_;
  CUevent event_ = nullptr;
};

// How the CPU waits for a stream. kAuto spins for a moment and then sleeps.
enum class Wait { kSpin, kSleep, kAuto };

// The waits of one place in the program. With kAuto it sleeps at once while its last waits were much longer than the moment:
// spinning would delay other threads that call the driver, and save nothing.
class Waiter {
 public:
  explicit Waiter(Wait how = Wait::kAuto) : how_(how) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Blocks until the event has happened.
  void wait(const Event& event);

 private:
  const Wait how_;
  std::atomic<int> long_waits_{0};  // in a row
};

// A stream of its own, which exists as long as the process, or one of another library. Its methods need the device as the
// current one; see CurrentDevice.
class Stream {
 public:
  // A stream that does not wait for the default stream.
  explicit Stream(const Device& device);
  // One that `handle` names as in DLPack (1: the default stream); its owner must keep it.
  Stream(const Device& device, std::int64_t handle) : device_(device), stream_(reinterpret_cast<CUstream>(handle)) {}
  ~Stream() { finish(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const noexcept { return device_; }
  const Driver& driver() const noexcept { return device_.driver(); }
  const CudaApi& api() const noexcept { return device_.api(); }
  CUstream raw() const noexcept { return stream_; }
  std::int64_t handle() const noexcept { return reinterpret_cast<std::int64_t>(stream_); }

  // Blocks until the work that the stream has now is done, and drops what was held for it.
  void wait(Waiter& waiter);
  void wait() {
    Waiter once;
    wait(once);
  }
  // Makes later work on another stream, named as in DLPack, wait for the work that this stream has now.
  void hold_back(std::int64_t other);
  // The number of waits that have begun, and whether one that began later has ended: then the work that the stream had is done.
  std::uint64_t waits() const noexcept { return begun_; }
  bool has_waited_since(std::uint64_t waits) const noexcept { return ended_ > waits; }
  // Blocks as `wait`, and drops what was held; errors are ignored, since the driver may be gone at the exit of the process.
  void finish() noexcept;
  // Keeps objects, such as the inputs of kernels, until the work that the stream has now is done. Called once after
  // each batch.
  void hold(std::shared_ptr<void> objects);

 private:
  struct Held {
    std::unique_ptr<Event> done;
    std::shared_ptr<void> objects;
  };

  std::unique_ptr<Event> take_event();

  const Device& device_;
  CUstream stream_ = nullptr;
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> ended_{0};  // the latest of the waits that have ended
  std::mutex mutex_;                     // guards held_ and spare_events_
  std::vector<Held> held_;
  std::vector<std::unique_ptr<Event>> spare_events_;
};

// Makes a stream that of the backends of its device which this thread calls, as long as it exists.
class StreamScope {
 public:
  explicit StreamScope(const std::shared_ptr<Stream>& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  // The stream of the innermost scope of this thread for the device of `own`; without one, `own`.
  static const std::shared_ptr<Stream>& stream_of(const std::shared_ptr<Stream>& own) noexcept;

 private:
  const std::shared_ptr<Stream> stream_;
  StreamScope* const outer_;
};

// Device memory. It is freed when the work that the stream got before is done, so no one has to wait for that work.
class Memory {
 public:
  Memory(std::shared_ptr<Stream> stream, std::size_t size);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  CUdeviceptr start() const noexcept { return start_; }
  const Stream& stream() const noexcept { return *stream_; }
  // Notes that the stream has all work that writes to the memory. Once the CPU has waited for that work, no stream has to.
  void set_written() noexcept { written_ = stream_->waits(); }
  // Makes later work on a stream (as in DLPack) wait until the memory is written, and freeing it wait for that work.
  void order(std::int64_t stream);

 private:
  const std::shared_ptr<Stream> stream_;
  const std::size_t size_;
  bool is_complete() const noexcept { return written_ && stream_->has_waited_since(*written_); }

  const CUdeviceptr start_;
  std::optional<std::uint64_t> written_;  // set before other threads see the memory
  std::mutex mutex_;
  std::set<std::int64_t> readers_;  // other streams; guarded by mutex_
};

}  // namespace hami_cuda
