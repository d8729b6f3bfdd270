// NodeVisits: counting, and the text.
#include "request/node_visits.hpp"

#include <algorithm>
#include <cstdio>
#include <new>

#include "request/request.hpp"

namespace hami {
namespace {

// In ms or s, rounded to three digits: more are noise in a message.
std::string show(Nanoseconds duration) {
  const double milliseconds = static_cast<double>(std::max<Nanoseconds>(0, duration)) / 1e6;
  if (milliseconds < 0.001) return "0ms";
  const bool seconds = milliseconds >= 999.5;
  const double count = seconds ? milliseconds / 1e3 : milliseconds;
  char text[64];
  std::snprintf(text, sizeof text, count < 999.5 ? "%.3g" : "%.0f", count);
  return text + std::string(seconds ? "s" : "ms");
}

}  // namespace

Ref<NodeVisits> NodeVisits::recorded() {
  Ref<NodeVisits> visits = make_object<NodeVisits>(now());
  visits->keeps_ended_ = true;
  any_recorded_ = true;
  return visits;
}

void NodeVisits::begin(Nanoseconds moment) noexcept {
  MutexLock lock(mutex_);
  began_ = moment;
}

NodeVisits::Visit* NodeVisits::find(std::string_view node) noexcept {
  const auto found =
      std::find_if(visits_.begin(), visits_.end(), [&](const Visit& visit) { return visit.node == node; });
  return found == visits_.end() ? nullptr : &*found;
}

void NodeVisits::arrive(std::string_view node, Nanoseconds moment) noexcept {
  MutexLock lock(mutex_);
  Visit* visit = find(node);
  try {
    if (!visit) visit = &visits_.emplace_back(Visit{std::string(node), moment});
  } catch (const std::bad_alloc&) {
    return;
  }
  ++visit->waiting;
}

void NodeVisits::start(std::string_view node, Nanoseconds moment) noexcept {
  MutexLock lock(mutex_);
  Visit* const visit = find(node);
  if (!visit || visit->waiting == 0) return;
  --visit->waiting;
  ++visit->running;
  visit->started = std::min(visit->started, moment);
}

void NodeVisits::leave(std::string_view node, bool ran, bool failed) noexcept {
  MutexLock lock(mutex_);
  Visit* const visit = find(node);
  if (!visit) return;
  visit->failed = visit->failed || failed;
  std::size_t& count = ran ? visit->running : visit->waiting;
  if (count > 0) --count;
  if (visit->waiting + visit->running > 0) return;
  if (keeps_ended_ && ended_.size() < kMaxEnded) {
    visit->ended = now();
    try {
      ended_.push_back(*visit);
    } catch (const std::bad_alloc&) {
    }
  }
  last_left_.swap(visit->node);
  visits_.erase(visits_.begin() + (visit - visits_.data()));
}

std::string NodeVisits::describe(Nanoseconds deadline, Nanoseconds moment) const {
  MutexLock lock(mutex_);
  std::string text = "its limit of " + show(std::max(deadline, began_) - began_) + " passed ";
  if (visits_.empty())
    return text + (last_left_.empty() ? "before it reached a node" : "after node \"" + last_left_ + "\"");
  for (const Visit& visit : visits_) {
    text += (&visit == &visits_.front() ? "at node \"" : " and at node \"") + visit.node + "\" (";
    if (!last_left_.empty()) text += "reached after " + show(visit.arrived - began_) + ", ";
    const Nanoseconds started = std::min(visit.started, moment);
    text += "waited " + show(started - visit.arrived) + ", ran " + show(moment - started) + ")";
  }
  return text;
}

std::vector<NodeVisits::Visit> NodeVisits::all() const {
  MutexLock lock(mutex_);
  std::vector<Visit> visits = ended_;
  visits.insert(visits.end(), visits_.begin(), visits_.end());
  return visits;
}

NodeVisits* find_visits(const Value& value) noexcept { return dynamic_cast<NodeVisits*>(value.object()); }

NodeVisits* visits_of(const Request& request) noexcept {
  if (request.deadline == kNever && !NodeVisits::any_recorded()) return nullptr;
  for (const Request* each = &request; each; each = each->parent.get())
    if (each->visits) return each->visits.get();
  return nullptr;
}

Error deadline_exceeded(const Request& request, Nanoseconds moment) noexcept {
  const NodeVisits* const visits = visits_of(request);
  const Error& general = Error::timed_out();
  if (!visits) return general;
  try {
    return Error(ErrorCode::kDeadlineExceeded, general.message() + ": " + visits->describe(request.deadline, moment));
  } catch (const std::bad_alloc&) {
    return general;
  }
}

}  // namespace hami
