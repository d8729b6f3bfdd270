// What the door exchanges with Python.
#include "door.hpp"

#include <simdjson.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

#include "connection.hpp"
#include "json.hpp"
#include "loop.hpp"

namespace hami_serve {

int made_event() {
  const int made = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return made;
}

std::string described(std::int64_t number, const Request& request) {
  std::string json = "{\"number\":";
  add_integer(json, number);
  json += ",\"model\":";
  add_integer(json, request.model->key);
  json += ",\"id\":";
  add_string(json, request.inference.id);
  json += request.inference.all_binary ? ",\"all_binary\":true" : ",\"all_binary\":false";
  json += ",\"charged\":";
  add_integer(json, request.charged);
  json += ",\"error\":";
  add_integer(json, request.error.is_none() ? 0 : reinterpret_cast<std::uintptr_t>(&request.error.raw()));
  json += ",\"outputs\":[";
  for (const WantedOutput& each : request.inference.outputs) {
    json += &each == &request.inference.outputs.front() ? "[" : ",[";
    add_string(json, each.name);
    json += !each.binary ? ",null]" : *each.binary ? ",true]" : ",false]";
  }
  json += "],\"keys\":{";
  for (const auto& [key, value] : request.keys) {
    if (&key != &request.keys.front().first) json += ',';
    add_string(json, key);
    json += ':';
    add_integer(json, reinterpret_cast<std::uintptr_t>(&value.raw()));
  }
  return json += "}}";
}

std::string seconds(std::int64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(nanoseconds) / kSecond);
  return text;
}

Limits read_limits(std::string_view json) {
  simdjson::dom::parser parser;
  const simdjson::dom::element given = parser.parse(json.data(), json.size());
  Limits limits;
  limits.max_body = given["max_body"];
  limits.max_open = given["max_open"];
  limits.only_loopback = given["only_loopback"];
  limits.authorization = std::string(std::string_view(given["authorization"]));
  for (const std::string_view origin : given["origins"].get_array()) limits.origins.emplace_back(origin);
  limits.exposed = std::string(std::string_view(given["exposed"]));
  const simdjson::dom::element times = given["times"];
  const auto time = [&](const char* name) { return static_cast<std::int64_t>(1e9 * double(times[name])); };
  limits.times = {time("idle"),        time("body"),         time("rate_after"), time("write"),
                  time("half_closed"), time("last_request"), time("linger"),     time("idle_calls")};
  return limits;
}

struct Door::Answered final : Task {
  void run() override {
    Asker* const asker = request->asker;
    if (asker) request->loop->guarded(asker->peer(), [&] { asker->answer(std::move(bytes)); });
  }

  std::shared_ptr<Request> request;
  std::string bytes;
};

Door::Door(Limits limits, std::size_t loops, const std::int64_t* python_open)
    : limits_(std::move(limits)), python_open_(python_open), event_(made_event()) {
  for (std::size_t i = 0; i < loops; ++i) loops_.push_back(std::make_unique<Loop>(*this));
}

void Door::stop() noexcept {
  worker_.stop();  // it gives its results to the loops
  loops_.clear();
  journal_.close();
}

Door::~Door() {
  stop();
  while (const std::unique_ptr<Handed> each = handed_.pop()) ::close(each->fd);
  ::close(event_);
}

void Door::notify() noexcept { ::eventfd_write(event_, 1); }

void Door::add(int fd, std::int32_t hops, std::string data) {
  auto given = std::make_shared<std::string>(std::move(data));
  add(fd, connections_,
      [fd, hops, given](Loop& loop) { return std::make_unique<Connection>(loop, fd, hops, std::move(*given)); });
}

void Door::add(int fd, std::atomic<std::int64_t>& connections, std::function<std::unique_ptr<Peer>(Loop&)> make) {
  const auto made = [fd, &connections, make = std::move(make)](Loop& loop) -> std::unique_ptr<Peer> {
    try {
      return make(loop);
    } catch (const std::bad_alloc&) {
      ::close(fd);
      --connections;
      return nullptr;
    }
  };
  ++connections;
  try {
    loops_[next_++ % loops_.size()]->add(made);
  } catch (const std::bad_alloc&) {
    --connections;
    throw;
  }
}

std::unique_ptr<Handed> Door::take() noexcept {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Handed> handed = handed_.pop();
  if (!handed) return nullptr;
  discharge(handed->charged);
  count_connection(-1);
  return handed;
}

void Door::hand_over(std::unique_ptr<Handed> handed) noexcept {
  count_connection(1);
  {
    const std::lock_guard lock(mutex_);
    handed_.push(std::move(handed));
  }
  notify();
}

const char* Door::take_unanswered(std::int64_t& number) noexcept {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = left_.upper_bound(last_taken_);
      if (found == left_.end()) return nullptr;
      number = last_taken_ = found->first;
      try {
        found->second.description = described(number, *found->second.request);
        return found->second.description.c_str();
      } catch (const std::bad_alloc&) {  // if it waited for the next event, that might never come
      }
    }
    answer(number, {});
  }
}

void Door::leave_to_python(std::shared_ptr<Request> request) {
  auto task = std::make_unique<Answered>();
  {
    const std::lock_guard lock(mutex_);
    left_.emplace(last_number_ + 1, Left{std::move(request), std::move(task), {}});
    ++last_number_;
  }
  notify();
}

void Door::answer(std::int64_t number, std::string bytes) noexcept {
  std::unique_ptr<Answered> task;
  {
    const std::lock_guard lock(mutex_);
    const auto found = left_.find(number);
    if (found == left_.end()) return;
    task = std::move(found->second.task);
    task->request = std::move(found->second.request);
    left_.erase(found);
  }
  task->bytes = std::move(bytes);
  Loop& loop = *task->request->loop;
  loop.post(std::move(task));
}

std::shared_ptr<const Table> Door::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

void Door::publish(std::string_view json) {
  std::shared_ptr<const Table> table = read_table(json, *this->table());
  const std::lock_guard lock(mutex_);
  for (const auto& [path, model] : table->by_path) {
    bool known = false;
    for (const ModelPtr& each : models_) known = known || each == model;
    if (!known) models_.push_back(model);
  }
  table_.swap(table);
}

std::string Door::statistics() {
  std::vector<ModelPtr> models;
  {
    const std::lock_guard lock(mutex_);
    models = models_;
    for (std::size_t i = models_.size(); i-- > 0;) {
      // Nothing but the list and its copy has it: it is not served any more, and no request needs it for its answer.
      if (models_[i].use_count() == 2) models_.erase(models_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::string json = "{\"answers\":";
  add_integer(json, answers_.exchange(0));
  json += ",\"timeouts\":";
  add_integer(json, timeouts_.exchange(0));
  json += ",\"left\":";
  add_integer(json, left_by_clients_.exchange(0));
  json += ",\"models\":[";
  for (const ModelPtr& each : models) {
    const std::int64_t in_flight = each->in_flight();
    const Counts counts = each->take_counts();
    if (&each != &models.front()) json += ',';
    json += "{\"key\":";
    add_integer(json, each->key);
    const auto add = [&](const char* name, auto number) {
      ((json += ",\"") += name) += "\":";
      add_integer(json, number);
    };
    add("in_flight", in_flight);
    add("calls", counts.calls);
    add("failures", counts.failures);
    add("more_rows", counts.more_rows);
    add("success_ns", counts.success_ns);
    add("failure_ns", counts.failure_ns);
    json += ",\"latencies_ns\":[";
    for (const std::int64_t& latency : counts.latencies_ns) {
      if (&latency != &counts.latencies_ns.front()) json += ',';
      add_integer(json, latency);
    }
    json += "]}";
  }
  return json += "]}";
}

void Door::drain() noexcept {
  if (draining_.exchange(true)) return;
  for (const auto& loop : loops_) loop->end_idle();
}

void Door::cancel() noexcept {
  for (const auto& loop : loops_) loop->cancel();
}

bool Door::charge(std::int64_t bytes, std::int64_t own) noexcept {
  const std::int64_t others = open_bytes_.fetch_add(bytes) + __atomic_load_n(python_open_, __ATOMIC_RELAXED);
  if (others == own || others + bytes <= limits_.max_open) return true;  // a request that is alone gets what it needs
  open_bytes_ -= bytes;
  return false;
}

}  // namespace hami_serve
