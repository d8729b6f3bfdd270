// The keys of a request that the pipe reads: parts, visits, priority, timeout and deadline.
#include "pipe/request_keys.hpp"

#include <cmath>

#include "lang/api.hpp"

namespace hami {
namespace {

// The key `timeout` of a request: a number of seconds, or a text with a unit. Error(kConfig) if it is neither.
Nanoseconds timeout_of(const Value& given) {
  static const ParamSpec spec = parse_param_specs("timeout: duration")[0];
  const bool is_number = given.kind() == Kind::kInt || given.kind() == Kind::kFloat;
  if (is_number && given.as_float() >= 0) return from_milliseconds(given.as_float() * 1e3);
  if (given.kind() == Kind::kStr) return from_milliseconds(coerce_param(spec, given, "the request").as_float());
  throw Error(ErrorCode::kConfig, "expected seconds, or text with a unit as \"50ms\", got " + show_value(given));
}

}  // namespace

bool take_parts(Request& request) noexcept {
  const Value* given = request.dict.find(kParts);
  Queue* const queue = given ? find_queue(*given) : nullptr;
  if (!queue) return true;  // a key like any other
  if (queue->closed()) {
    request.fail(Error(ErrorCode::kRequest,
                       "the queue under the key \"parts\" is closed; use a new hami.Queue for each request"));
    return false;
  }
  request.parts = Ref<Queue>(queue);
  request.dict.erase(kParts);
  return true;
}

void take_visits(Request& request, Nanoseconds moment) noexcept {
  const Value* const given = request.dict.find(kVisits);
  NodeVisits* const visits = given ? find_visits(*given) : nullptr;
  if (!visits) return;
  visits->begin(moment);
  request.visits = Ref<NodeVisits>(visits);
  request.dict.erase(kVisits);
}

bool read_urgency(Request& request, Nanoseconds limit, Nanoseconds moment) {
  const auto lower = [&](Nanoseconds duration) {
    request.deadline = std::min(request.deadline, after(moment, std::max<Nanoseconds>(0, duration)));
  };
  lower(limit);
  request.deadline = std::min(request.deadline, ExecutionFrame::deadline());
  try {
    const std::optional<std::uint8_t> priority = declared_priority(request.dict);
    request.priority = priority ? *priority : ExecutionFrame::priority();
  } catch (const Error& error) {
    request.fail(error);
    return false;
  }
  try {
    if (const Value* given = request.dict.find("timeout"); given && !given->is_none()) {
      lower(timeout_of(*given));
    }
    if (const Value* given = request.dict.find("deadline"); given && !given->is_none()) {
      const double seconds = given->as_float();
      if (std::isnan(seconds)) throw Error(ErrorCode::kDataType, "expected a number, got nan");
      request.deadline = std::min(request.deadline, std::max<Nanoseconds>(0, from_milliseconds(seconds * 1e3)));
    }
    return true;
  } catch (const Error& error) {
    request.fail(Error(ErrorCode::kDataType, "timeout or deadline of the request: " + error.message()));
    return false;
  }
}

}  // namespace hami
