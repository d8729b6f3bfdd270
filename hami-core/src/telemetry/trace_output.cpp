// Output: the file of a trace.
#include "telemetry/trace_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <deque>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "sync/api.hpp"

namespace hami::trace {
namespace {

constexpr std::size_t kMaxKept = 1 << 20;   // events that `last` keeps, 56 MB
constexpr std::size_t kMaxWrite = 1 << 18;  // bytes that are collected before they are written

Error cannot_write(const std::string& path, int reason) {
  if (reason == ENXIO)
    return Error(ErrorCode::kConfig, "cannot write the trace to \"" + path +
                                         "\": it is a FIFO that no process reads; start the reader first, or give the "
                                         "path of a file");
  if (reason == ETIMEDOUT)
    return Error(ErrorCode::kConfig,
                 "cannot write the trace to \"" + path +
                     "\": its reader has not read for 5 s; let it read, or give the path of a file");
  return Error(ErrorCode::kConfig, "cannot write the trace to \"" + path +
                                       "\": " + std::generic_category().message(reason) +
                                       "; give the path of a file in a folder that exists and can be written");
}

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), kFlags, 0666)) {
    if (file_ < 0) throw cannot_write(path_, errno);
  }
  ~File() { ::close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Whole packets; if they cannot be written, none of them is in the file.
  void write(const std::string& packets) {
    for (std::size_t done = 0; done < packets.size();) {
      const ssize_t count = ::write(file_, packets.data() + done, packets.size() - done);
      if (count < 0 && (errno == EINTR || (errno == EAGAIN && wait_for_reader()))) continue;
      if (count <= 0) {
        const int reason = count < 0 ? errno : ENOSPC;
        if (ftruncate(file_, size_) != 0) {  // a device: nothing to take back
        }
        throw cannot_write(path_, reason);
      }
      done += static_cast<std::size_t>(count);
    }
    size_ += static_cast<off_t>(packets.size());
  }
  std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(size_); }

 private:
  // Opening a FIFO fails if no process reads it; otherwise it would wait for one. Regular files ignore O_NONBLOCK.
  static constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK;
  static constexpr int kReaderTimeout = 5000;  // ms; stopping the trace waits as long

  // False, with errno: the reader of a FIFO does not read.
  bool wait_for_reader() const noexcept {
    pollfd waited{file_, POLLOUT, 0};
    const int ready = ::poll(&waited, 1, kReaderTimeout);
    if (ready == 0) errno = ETIMEDOUT;
    return ready > 0 || errno == EINTR;
  }

  const std::string path_;
  const int file_;
  off_t size_ = 0;
};

class WholeTrace final : public Output {
 public:
  explicit WholeTrace(const std::string& path) : file_(path) { write(); }

  void add(const Event& event, std::size_t index, const Thread& thread) override {
    writer_.add(event, index, thread);
    if (writer_.packets().size() >= kMaxWrite) write();
  }
  void flush(std::uint64_t lost, Nanoseconds moment) override {
    if (lost > 0) writer_.add_mark("lost events", moment, "count", lost);
    write();
  }
  std::uint64_t written() const noexcept override { return file_.size(); }

 private:
  void write() {
    file_.write(writer_.packets());
    writer_.clear();
  }

  TraceWriter writer_;
  File file_;
};

// Keeps the latest events, and replaces the file when a request was slow.
class SlowRequests final : public Output {
 public:
  explicit SlowRequests(const Options& options) : options_(options), part_(options.path + ".part") {
    const File writable(part_);
    if (::rename(part_.c_str(), options.path.c_str()) != 0) throw cannot_write(options.path, errno);
  }

  void add(const Event& event, std::size_t index, const Thread& thread) override {
    if (index >= threads_.size()) threads_.resize(index + 1);
    if (threads_[index].id == 0) threads_[index] = thread;
    kept_.push_back({event, index});
    if (event.kind == Event::kRequestEnd && event.time - event.until >= options_.slow && !slow_) slow_ = event;
  }
  void flush(std::uint64_t, Nanoseconds moment) override {
    // Threads are drained one after the other: an event may be older than those before it.
    while (!kept_.empty() && (kept_.size() > kMaxKept || kept_.front().event.time < moment - options_.last))
      kept_.pop_front();
    if (!slow_ || (files_ > 0 && moment - written_at_ < options_.last)) {
      slow_.reset();
      return;
    }
    write(*std::exchange(slow_, std::nullopt));
    written_at_ = moment;
    ++files_;
  }
  std::uint64_t written() const noexcept override { return files_; }

 private:
  struct Kept {
    Event event;
    std::size_t index;
  };

  void write(const Event& slow) {
    File file(part_);
    TraceWriter writer;
    writer.add_mark("slow request", slow.time, "request", slow.request);
    for (const Kept& each : kept_) {
      writer.add(each.event, each.index, threads_[each.index]);
      if (writer.packets().size() < kMaxWrite) continue;
      file.write(writer.packets());
      writer.clear();
    }
    file.write(writer.packets());
    if (::rename(part_.c_str(), options_.path.c_str()) != 0) throw cannot_write(options_.path, errno);
  }

  const Options options_;
  const std::string part_;
  std::deque<Kept> kept_;
  std::vector<Thread> threads_;
  std::optional<Event> slow_;
  Nanoseconds written_at_ = 0;
  std::uint64_t files_ = 0;
};

}  // namespace

std::unique_ptr<Output> open_output(const Options& options) {
  if (options.last > 0) return std::make_unique<SlowRequests>(options);
  return std::make_unique<WholeTrace>(options.path);
}

}  // namespace hami::trace
