// Passes entries from the threads of the connections to the reader.
#include "journal.hpp"

#include <new>
#include <utility>

#include "json.hpp"
#include "loop.hpp"

namespace hami_serve {
namespace {

constexpr std::size_t kMaxEntries = 1 << 12;  // that wait: a reader that is not held up is never so far behind
constexpr std::size_t kMaxTaken = 1 << 8;     // at once

std::uintptr_t address_of(const hami::Value& value) noexcept {
  return value.is_none() ? 0 : reinterpret_cast<std::uintptr_t>(&value.raw());
}

void add_entry(std::string& json, const Entry& entry) {
  json += "{\"path\":";
  add_string(json, entry.path);
  json += ",\"id\":";
  add_string(json, entry.id);
  const auto add = [&](const char* name, auto number) {
    ((json += ",\"") += name) += "\":";
    add_integer(json, number);
  };
  add("model", entry.model ? entry.model->key : 0);
  add("visits", address_of(entry.visits));
  add("error", address_of(entry.error));
  add("priority", entry.priority);
  add("ran_from", entry.ran_from);
  add("ran_to", entry.ran_to);
  add("begun", entry.begun);
  add("ended", entry.ended);
  add("status", entry.status);
  json += ",\"trace\":[";
  for (const std::string& each : entry.trace) {
    if (&each != &entry.trace.front()) json += ',';
    add_string(json, each);
  }
  json += "]}";
}

}  // namespace

bool Entry::record(const ModelPtr& running, Inference& inference) {
  if (id.size() > kMaxId) return false;
  model = running;
  priority = inference.priority;
  ran_from = now_ns();
  visits = running->new_visits();
  if (!visits.is_none()) inference.keys.emplace_back(kVisits, visits);
  return true;
}

void Entry::has_run(const Request& request) noexcept {
  ran_to = now_ns();
  error = request.error;
}

void Journal::add(std::unique_ptr<Entry> entry) noexcept {
  entry->ended = now_ns();
  {
    const std::lock_guard lock(mutex_);
    if (entries_.size() < kMaxEntries)
      entries_.push(std::move(entry));
    else
      ++dropped_;
  }
  changed_.notify_one();
}

void Journal::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_one();
}

std::unique_ptr<Journal::Batch> Journal::take() {
  auto batch = std::make_unique<Batch>();
  std::uint64_t dropped = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_closed_ || !entries_.empty() || dropped_ > 0; });
    while (batch->entries.size() < kMaxTaken) {
      std::unique_ptr<Entry> entry = entries_.pop();
      if (!entry) break;
      batch->entries.push(std::move(entry));
    }
    dropped = std::exchange(dropped_, 0);
  }
  if (batch->entries.empty() && dropped == 0) return nullptr;
  try {
    batch->json = "{\"dropped\":";
    add_integer(batch->json, dropped);
    batch->json += ",\"entries\":[";
    bool is_first = true;
    batch->entries.for_each([&](const Entry& entry) {
      if (!std::exchange(is_first, false)) batch->json += ',';
      add_entry(batch->json, entry);
    });
    batch->json += "]}";
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    dropped_ += dropped + batch->entries.size();
    throw;
  }
  return batch;
}

}  // namespace hami_serve
