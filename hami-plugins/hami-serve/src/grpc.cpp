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

struct Grpc::Finished final : Task {
  void run() override {
    Left ended{};
    {
      const std::lock_guard lock(grpc->mutex_);
      const auto found = grpc->left_.find(number);
      if (found == grpc->left_.end()) return;
      ended = std::move(found->second);
      grpc->left_.erase(found);
    }
    if (Call* const call = ended.call)
      ended.loop->guarded(call->peer(), [&] { call->finish(status, std::move(text)); });
  }

  Grpc* grpc = nullptr;
  std::int64_t number = 0;
  std::int32_t status = 0;
  std::string text;
};

Grpc::Grpc(Door& door, GrpcTexts texts, std::size_t max_answer)
    : door_(door), texts_(std::move(texts)), max_answer_(max_answer), event_(made_event()) {}

Grpc::~Grpc() { ::close(event_); }

void Grpc::add(int fd) {
  door_.add(fd, connections_, [this, fd](Loop& loop) { return std::make_unique<Http2Connection>(loop, fd, *this); });
}

std::unique_ptr<GrpcEvent> Grpc::take() noexcept {
  const std::lock_guard lock(mutex_);
  return events_.pop();
}

void Grpc::release(std::unique_ptr<GrpcEvent> event) noexcept { door_.discharge(event->charged); }

void Grpc::push(std::unique_ptr<GrpcEvent> event) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (event->kind == GrpcEventKind::kRejected && events_.size() >= kMaxEvents) return;  // a flood: no line in the log
    first = events_.empty();
    events_.push(std::move(event));
  }
  if (first) ::eventfd_write(event_, 1);
}

std::int64_t Grpc::leave_to_python(Loop& loop, Call& call, std::unique_ptr<GrpcEvent> first,
                                   std::shared_ptr<Request> request) {
  Left left{&loop, &call, std::move(request), event_of(0, GrpcEventKind::kGone), std::make_unique<Finished>()};
  left.end->grpc = this;
  std::int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = last_number_ + 1;
    first->number = left.gone->number = left.end->number = number;
    left_.emplace(number, std::move(left));
    last_number_ = number;
  }
  push(std::move(first));
  return number;
}

void Grpc::forget(std::int64_t number) noexcept {
  std::unique_ptr<GrpcEvent> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = left_.find(number);
    if (found == left_.end()) return;
    found->second.call = nullptr;
    gone = std::move(found->second.gone);
  }
  if (gone) push(std::move(gone));
}

void Grpc::end(std::int64_t number) noexcept {
  std::unique_ptr<GrpcEvent> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = left_.find(number);
    if (found != left_.end()) gone = std::move(found->second.gone);
  }
  if (gone) push(std::move(gone));
  finish(number, kResourceExhausted, {});
}

template <class Step>
void Grpc::post(std::int64_t number, Step step) {
  auto task = task_of([this, number, step = std::move(step)]() mutable {
    Call* call = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = left_.find(number);
      if (found != left_.end()) call = found->second.call;
    }
    if (call) call->loop().guarded(call->peer(), [&] { step(*call); });
  });
  const std::lock_guard lock(mutex_);  // a call that has not ended keeps its loop
  const auto known = left_.find(number);
  if (known != left_.end() && known->second.call) known->second.loop->post(std::move(task));
}

void Grpc::ask(std::int64_t number) {
  post(number, [](Call& call) { call.ask(); });
}

void Grpc::write(std::int64_t number, std::string message) {
  post(number, [message = std::move(message)](Call& call) mutable { call.write(std::move(message)); });
}

void Grpc::finish(std::int64_t number, std::int32_t status, std::string text) noexcept {
  Left gone{};  // a request that Python has read, which ends outside of the lock
  const std::lock_guard lock(mutex_);
  const auto known = left_.find(number);
  if (known == left_.end()) return;
  if (!known->second.call) {
    gone = std::move(known->second);
    left_.erase(known);
    return;
  }
  std::unique_ptr<Finished> end = std::move(known->second.end);
  if (!end) return;
  end->status = status;
  end->text = std::move(text);
  known->second.loop->post(std::move(end));
}

}  // namespace hami_serve
