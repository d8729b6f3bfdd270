// Passes calls to Python, and what it says to the loops.
#include "grpc.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "grpc_call.hpp"
#include "http2_connection.hpp"
#include "loop.hpp"

namespace hami_serve {
namespace {

constexpr std::size_t kMaxEvents = 1 << 12;  // that Python has not taken, with those of rejected calls

}  // namespace

Grpc::Grpc(Door& door, GrpcTexts texts, std::size_t max_answer)
    : door_(door), texts_(std::move(texts)), max_answer_(max_answer), event_(made_event()) {}

Grpc::~Grpc() { ::close(event_); }

void Grpc::add(int fd) {
  count_connection(1);
  door_.add([this, fd](Loop& loop) { return std::make_unique<Http2Connection>(loop, fd, *this); });
}

std::unique_ptr<GrpcEvent> Grpc::take() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return nullptr;
  std::unique_ptr<GrpcEvent> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Grpc::release(std::unique_ptr<GrpcEvent> event) noexcept { door_.discharge(event->charged); }

void Grpc::push(GrpcEvent event) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (event.kind == GrpcEventKind::kRejected && events_.size() >= kMaxEvents) return;  // a flood: no line in the log
    first = events_.empty();
    events_.push_back(std::make_unique<GrpcEvent>(std::move(event)));
  }
  if (first) ::eventfd_write(event_, 1);
}

std::int64_t Grpc::leave_to_python(Loop& loop, Call& call) {
  const std::lock_guard lock(mutex_);
  left_.emplace(++last_number_, Left{&loop, &call, nullptr});
  return last_number_;
}

void Grpc::forget(std::int64_t number) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = left_.find(number);
    if (found == left_.end()) return;
    found->second.call = nullptr;
  }
  push({number, GrpcEventKind::kGone, {}, nullptr, 0});
}

void Grpc::complete(std::int64_t number, std::shared_ptr<Request> request) {
  GrpcEvent event{number, GrpcEventKind::kCompleted, described(number, *request), nullptr, 0};
  {
    const std::lock_guard lock(mutex_);
    left_.at(number).request = std::move(request);
  }
  push(std::move(event));
}

void Grpc::post(std::int64_t number, std::function<void(Call&)> task) {
  const std::lock_guard lock(mutex_);  // a call that has not ended keeps its loop
  const auto known = left_.find(number);
  if (known == left_.end() || !known->second.call) return;
  known->second.loop->post([this, number, task = std::move(task)] {
    Call* call = nullptr;
    {
      const std::lock_guard again(mutex_);
      const auto found = left_.find(number);
      if (found != left_.end()) call = found->second.call;
    }
    if (call) task(*call);
  });
}

void Grpc::ask(std::int64_t number) {
  post(number, [](Call& call) { call.ask(); });
}

void Grpc::write(std::int64_t number, std::string message) {
  const auto given = std::make_shared<std::string>(std::move(message));
  post(number, [given](Call& call) { call.write(std::move(*given)); });
}

void Grpc::finish(std::int64_t number, std::int32_t status, std::string text) {
  Left gone{};  // a request that Python has read, which ends outside of the lock
  const std::lock_guard lock(mutex_);
  const auto known = left_.find(number);
  if (known == left_.end()) return;
  if (!known->second.call) {
    gone = std::move(known->second);
    left_.erase(known);
    return;
  }
  known->second.loop->post([this, number, status, text = std::move(text)]() mutable {
    Left ended{};
    {
      const std::lock_guard again(mutex_);
      const auto found = left_.find(number);
      if (found == left_.end()) return;
      ended = std::move(found->second);
      left_.erase(found);
    }
    if (ended.call) ended.call->finish(status, std::move(text));
  });
}

}  // namespace hami_serve
