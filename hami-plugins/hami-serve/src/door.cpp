// What the door exchanges with Python.
#include "door.hpp"

#include <simdjson.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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
  const simdjson::dom::element times = given["times"];
  const auto time = [&](const char* name) { return static_cast<std::int64_t>(1e9 * double(times[name])); };
  limits.times = {time("idle"),        time("body"),         time("rate_after"), time("write"),
                  time("half_closed"), time("last_request"), time("linger"),     time("idle_calls")};
  return limits;
}

Door::Door(Limits limits, std::size_t loops, const std::int64_t* python_open)
    : limits_(std::move(limits)), python_open_(python_open), event_(made_event()) {
  for (std::size_t i = 0; i < loops; ++i) loops_.push_back(std::make_unique<Loop>(*this));
}

Door::~Door() {
  worker_.stop();  // it gives its results to the loops
  loops_.clear();
  for (const Handed& each : handed_) ::close(each.fd);
  ::close(event_);
}

void Door::notify() noexcept { ::eventfd_write(event_, 1); }

void Door::add(int fd, std::int32_t hops, std::string data) {
  auto given = std::make_shared<std::string>(std::move(data));
  count_connection(1);
  add([fd, hops, given](Loop& loop) { return std::make_unique<Connection>(loop, fd, hops, std::move(*given)); });
}

void Door::add(std::function<std::unique_ptr<Peer>(Loop&)> make) {
  loops_[next_++ % loops_.size()]->add(std::move(make));
}

bool Door::take(Handed& handed) {
  const std::lock_guard lock(mutex_);
  if (handed_.empty()) return false;
  handed = std::move(handed_.front());
  handed_.pop_front();
  discharge(handed.charged);
  count_connection(-1);
  return true;
}

void Door::hand_over(Handed handed) {
  count_connection(1);
  {
    const std::lock_guard lock(mutex_);
    handed_.push_back(std::move(handed));
  }
  notify();
}

std::string Door::take_unanswered() {
  const std::lock_guard lock(mutex_);
  if (unanswered_.empty()) return {};
  const std::int64_t number = unanswered_.front();
  unanswered_.pop_front();
  return described(number, *left_.at(number));
}

void Door::leave_to_python(std::shared_ptr<Request> request) {
  {
    const std::lock_guard lock(mutex_);
    left_.emplace(++last_number_, std::move(request));
    unanswered_.push_back(last_number_);
  }
  notify();
}

void Door::answer(std::int64_t number, std::string bytes) {
  std::shared_ptr<Request> request;
  {
    const std::lock_guard lock(mutex_);
    const auto found = left_.find(number);
    if (found == left_.end()) return;
    request = std::move(found->second);
    left_.erase(found);
  }
  Loop& loop = *request->loop;
  loop.post([request = std::move(request), bytes = std::move(bytes)]() mutable {
    if (request->asker) request->asker->answer(std::move(bytes));
  });
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

void Door::drain() {
  if (draining_.exchange(true)) return;
  for (const auto& loop : loops_) loop->end_idle();
}

void Door::cancel() {
  for (const auto& loop : loops_) loop->cancel();
}

bool Door::charge(std::int64_t bytes) noexcept {
  const std::int64_t others = open_bytes_.fetch_add(bytes) + __atomic_load_n(python_open_, __ATOMIC_RELAXED);
  if (others == 0 || others + bytes <= limits_.max_open) return true;  // a request that is alone gets what it needs
  open_bytes_ -= bytes;
  return false;
}

}  // namespace hami_serve
