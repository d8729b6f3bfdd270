// Request: size, branches, completion.
#include "request/request.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "request/execution_frame.hpp"

namespace hami {

Ref<Request> Request::branch(Ref<CompletionSink> branch_sink, std::size_t branch_index) {
  Ref<Request> child = make_counted<Request>();
  child->dict = dict;
  child->sink = std::move(branch_sink);
  child->parent = Ref<Request>(this);
  child->index = branch_index;
  child->items = items;
  child->deadline = deadline;
  child->priority = priority;
  child->isolates = isolates;
  return child;
}

bool Request::cancelled() const noexcept {
  if (abandoned_.load(std::memory_order_relaxed) || (deadline != kNever && deadline <= now())) return true;
  if (parent) return parent->cancelled();
  const auto gone = [](const Ref<Request>& request) { return request->cancelled(); };
  return !merged_from.empty() && std::all_of(merged_from.begin(), merged_from.end(), gone);
}

bool Request::emit(Value part) {
  const Request& caller = root();
  if (!caller.parts) return false;
  const Ref<Queue> queue = caller.parts;
  caller.emitted_.fetch_add(1, std::memory_order_relaxed);
  try {
    queue->push(std::move(part), deadline);
  } catch (const Error& failure) {
    if (failure.code() == ErrorCode::kPipeClosed) {  // the caller has left
      caller.abandon();
      throw cancellation();
    }
    if (failure.code() == ErrorCode::kDeadlineExceeded) throw deadline_exceeded(*this, now());
    throw;
  }
  return true;
}

void Request::fail_if_cancelled() noexcept {
  if (cancelled()) error = cancellation();
}

Error Request::cancellation() const noexcept {
  const Nanoseconds moment = now();
  return deadline <= moment ? deadline_exceeded(*this, moment) : Error::cancelled();
}

std::size_t Batch::items() const noexcept {
  std::size_t sum = 0;
  for (const Request* request : *this) sum += request->items;
  return sum;
}

std::size_t Batch::parts_emitted() const noexcept {
  std::size_t sum = 0;
  for (const Request* request : *this) sum += request->parts_emitted();
  return sum;
}

namespace {

std::string got(const Value& value) {
  const std::string type = type_name(value);
  return ", got " + type + (type == "int" ? " of more than 64 bits" : "");
}

}  // namespace

bool result_to_data(Request& request, const std::string& step) {
  Value* result = request.dict.find(kResult);
  if (!result) {
    request.fail(Error(ErrorCode::kNoResult, step + " left no `result`"));
    return false;
  }
  request.dict.set(kData, std::move(*result));
  request.dict.erase(kResult);
  return true;
}

std::size_t declared_items(const Dict& dict) {
  const Value* given = dict.find(kRequestSize);
  if (!given) return 1;
  if (given->kind() != Kind::kInt || given->as_int() < 1)
    throw Error(ErrorCode::kRequest,
                given->kind() == Kind::kInt
                    ? "request_size is " + std::to_string(given->as_int()) + "; it must be at least 1"
                    : "request_size must be an int of at least 1" + got(*given));
  return static_cast<std::size_t>(given->as_int());
}

double checked_cost(const Value& given, const std::string& what) {
  const bool is_int = given.kind() == Kind::kInt, is_float = given.kind() == Kind::kFloat;
  const double cost = is_int ? static_cast<double>(given.as_int()) : is_float ? given.as_float() : 0;
  if (cost > 0 && std::isfinite(cost)) return std::clamp(cost, kLeastCost, kMostCost);
  throw Error(ErrorCode::kRequest, what + (is_int || is_float ? ", got " + std::to_string(cost) : got(given)));
}

CostFunction cost_by_key(std::string key) {
  return [key = std::move(key)](Batch batch) {
    for (Request* request : batch) {
      try {
        const std::string what = "request_cost: the request must have a positive number as its key \"" + key + "\"";
        const Value* const given = request->dict.find(key);
        if (!given) throw Error(ErrorCode::kRequest, what + "; it has no such key");
        request->cost = checked_cost(*given, what);
      } catch (...) {
        request->fail(current_error());
      }
    }
  };
}

std::optional<std::uint8_t> declared_priority(const Dict& dict) {
  const Value* given = dict.find(kPriority);
  if (!given || given->is_none()) return std::nullopt;
  if (given->kind() != Kind::kInt)
    throw Error(ErrorCode::kDataType, "priority must be an int of 0 to 255" + got(*given));
  const std::int64_t priority = given->as_int();
  if (priority < 0 || priority > UINT8_MAX)
    throw Error(ErrorCode::kRequest, "priority is " + std::to_string(priority) + "; it must be 0 to 255");
  return static_cast<std::uint8_t>(priority);
}

bool only_wakes(Batch batch) noexcept {
  return std::all_of(batch.begin(), batch.end(), [](const Request* request) { return request->sink->only_wakes(); });
}

namespace {

// False: out of memory. `most`: how many there may be.
bool add_parked(std::vector<Parker::Entry>& parked, std::size_t most, Parker::Entry entry) noexcept {
  try {
    parked.reserve(most);
    parked.push_back(std::move(entry));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

void complete_requests(Batch batch) noexcept {
  std::optional<CompletionBatch> completion;
  std::vector<Parker::Entry> parked;
  for (std::size_t first = 0; first < batch.size();) {
    std::size_t last = first + 1;
    while (last < batch.size() && batch[last].sink.get() == batch[first].sink.get()) ++last;
    const Ref<CompletionSink> sink = batch[first].sink;  // outlives the requests, which drop their reference
    if (!sink->only_wakes() || sink->calls_back()) Parker::wake_all(parked);  // before work that may take time
    if (!sink->calls_back())
      completion.reset();  // the sink may do work of its own
    else if (!completion && last < batch.size())
      completion.emplace();
    Parker* const parker = sink->complete(batch.begin() + first, last - first);
    ExecutionFrame::passed_on(batch.part(first, last - first));
    const bool is_only = parked.empty() && last == batch.size();
    if (parker && (is_only || !add_parked(parked, batch.size(), {Ref<Counted>(sink.get()), parker}))) parker->wake();
    first = last;
  }
  Parker::wake_all(parked);
}

}  // namespace hami
