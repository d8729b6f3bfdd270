// The events of a thread of the door: sockets, completed requests, and tasks of other threads.
#include "loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

namespace hami_serve {
namespace {

constexpr int kTick = 500;  // milliseconds between looks at deadlines
constexpr std::int64_t kNanoseconds = 1'000'000;
constexpr std::size_t kEvents = 256;

thread_local const Loop* current = nullptr;  // of this thread

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

}  // namespace

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Loop::Loop(Door& door)
    : door_(door),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  checked(::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event), "epoll_ctl");
  thread_ = std::thread([this] { run(); });
}

Loop::~Loop() {
  order(kStop);
  thread_.join();
  ::close(wake_);
  ::close(epoll_);
}

void Loop::post(std::unique_ptr<Task> task) noexcept {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push(std::move(task));
  }
  ::eventfd_write(wake_, 1);
}

void Loop::order(Order order) noexcept {
  orders_ |= order;
  ::eventfd_write(wake_, 1);
}

void Loop::completed(Request& request) noexcept {
  // Under the lock: the thread may end, and this loop with it, as soon as it has the last request.
  const std::lock_guard lock(mutex_);
  if (!completed_ && current != this) ::eventfd_write(wake_, 1);
  request.before = std::exchange(completed_, &request);
}

void Loop::add(std::function<std::unique_ptr<Peer>(Loop&)> make) {
  post(task_of([this, make = std::move(make)] {
    std::unique_ptr<Peer> made = make(*this);
    epoll_event event{};
    event.data.ptr = made.get();
    if (!made || stopping_ || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, made->fd(), &event) != 0) return;
    Peer& connection = *made;
    connections_.emplace(&connection, std::move(made));
    guarded(connection, [&] { connection.go_on(); });
  }));
}

// `step` removes no other connection than its own.
template <class Step>
void Loop::for_each_connection(Step&& step) {
  for (auto at = connections_.begin(); at != connections_.end();) {
    Peer& each = *(at++)->first;
    guarded(each, [&] { step(each); });
  }
}

void Loop::obey(unsigned orders) {
  if (orders & kEndIdle) for_each_connection([](Peer& each) { each.end_if_idle(); });
  if (orders & kCancel) for_each_connection([](Peer& each) { each.cancel(); });
  if ((orders & kStop) == 0) return;
  stopping_ = true;
  for_each_connection([](Peer& each) { each.close(); });
}

void Loop::watch(Peer& connection, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &connection;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd(), &event);
}

void Loop::again(Peer& connection) { again_.push_back(&connection); }

void Loop::look_at(std::int64_t moment) { look_at_ = std::min(look_at_, moment); }

void Loop::remove(Peer& connection) noexcept {
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.fd(), nullptr);
  const auto found = connections_.find(&connection);
  if (found == connections_.end()) return;
  removed_.push(std::move(found->second));
  connections_.erase(found);
}

// ---- requests

void Loop::on_done(void* data, hami_error* error, const hami_dict* keys) {
  Request& request = *static_cast<Request*>(data);
  const hami_host& host = hami::host();
  if (error) {
    hami::Value event;
    if (hami_error* const failed = host.event_new(&event.raw())) {
      host.error_free(failed);
      host.error_free(error);
    } else {
      host.error_free(host.event_fail(&event.raw(), error, nullptr));
    }
    request.error = std::move(event);
  }
  try {
    for (std::size_t i = 0; keys && i < host.dict_size(keys); ++i) {
      hami_text key{};
      hami_value value{};
      if (!host.dict_at(keys, i, &key, &value)) continue;
      hami::Value owned = hami::Value::adopt(value);
      request.keys.emplace_back(std::string(key.data, key.size), std::move(owned));
    }
  } catch (const std::bad_alloc&) {
    request.is_lost = true;
  }
  request.loop->completed(request);
}

bool Loop::submit(std::shared_ptr<Request> shared) {
  std::vector<hami_text> keys;
  std::vector<hami_value> values;
  Model& model = *shared->model;
  const std::int64_t timeout = shared->inference.timeout.value_or(0);
  if (timeout > 0) shared->timeout = std::min(shared->timeout, timeout);
  try {
    for (const auto& [key, value] : shared->inference.keys) {
      keys.push_back({key.data(), key.size()});
      values.push_back(value.raw());
    }
    running_.emplace(shared.get(), shared);
  } catch (const std::bad_alloc&) {
    return false;
  }
  model.began();
  shared->begun = now_ns();
  hami_error* const failed = model.caller().table->submit(&model.caller(), keys.data(), values.data(), keys.size(),
                                                          shared->timeout, on_done, shared.get(), &shared->started);
  if (failed) {
    hami::host().error_free(failed);
    model.left();
    running_.erase(shared.get());
    return false;
  }
  shared->inference.keys.clear();
  return true;
}

void Loop::finish(Request* completed) {
  const auto found = running_.find(completed);
  std::shared_ptr<Request> request = std::move(found->second);
  running_.erase(found);
  const bool failed = request->is_lost || !request->error.is_none() || request->keys.empty();
  request->model->ended(now_ns() - request->begun, failed, request->inference.rows);
  Asker* const asker = request->asker;
  if (!asker) return;
  guarded(asker->peer(), [&] {  // which forgets the request before this does
    if (request->is_lost) throw std::bad_alloc();
    asker->completed(request, failed);
  });
}

// ---- the thread

void Loop::run() {
  current = this;
  std::array<epoll_event, kEvents> events;
  look_at_ = now_ns() + kTick * kNanoseconds;
  while (!stopping_ || !running_.empty()) {
    const int wait = again_.empty() ? until_look() : 0;
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait);
    for (int i = 0; i < count; ++i) {
      if (auto* const connection = static_cast<Peer*>(events[static_cast<std::size_t>(i)].data.ptr)) {
        guarded(*connection, [&] { connection->handle(events[static_cast<std::size_t>(i)].events); });
        continue;
      }
      eventfd_t woken = 0;
      ::eventfd_read(wake_, &woken);
      run_tasks();
    }
    run_completed();
    for (Peer* const each : std::exchange(again_, {}))
      if (connections_.count(each) > 0) guarded(*each, [&] { each->go_on(); });
    run_completed();
    removed_.clear();
    if (now_ns() < look_at_) continue;
    look_at_ = now_ns() + kTick * kNanoseconds;
    look_at_deadlines();
    run_completed();
    removed_.clear();
  }
}

// Milliseconds, rounded up.
int Loop::until_look() const noexcept {
  const std::int64_t left = look_at_ - now_ns();
  return left <= 0 ? 0 : static_cast<int>((left + kNanoseconds - 1) / kNanoseconds);
}

void Loop::run_tasks() {
  obey(orders_.exchange(0));
  Queue<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  while (const std::unique_ptr<Task> task = tasks.pop()) {
    try {
      task->run();
    } catch (const std::bad_alloc&) {  // a connection that could not begin
    }
  }
}

void Loop::run_completed() {
  Request* last = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::swap(last, completed_);
  }
  Request* first = nullptr;
  while (last) {  // in the order of their ends
    Request* const each = std::exchange(last, last->before);
    each->before = std::exchange(first, each);
  }
  while (first) {
    Request* const each = std::exchange(first, first->before);
    finish(each);
  }
}

void Loop::look_at_deadlines() {
  const std::int64_t now = now_ns();
  for_each_connection([&](Peer& each) { each.check_deadline(now); });
}

}  // namespace hami_serve
