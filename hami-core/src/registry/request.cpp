// Requests: size, branches, completion.
#include "registry/request.hpp"

namespace hami {

Ref<Request> Request::branch(Ref<Sink> branch_sink, std::size_t branch_index) {
  Ref<Request> child = make_counted<Request>();
  child->dict = dict;
  child->sink = std::move(branch_sink);
  child->parent = Ref<Request>(this);
  child->index = branch_index;
  child->items = items;
  child->deadline = deadline;
  return child;
}

std::size_t Batch::items() const noexcept {
  std::size_t sum = 0;
  for (const Request* request : *this) sum += request->items;
  return sum;
}

bool promote_result(Request& request, const std::string& step) {
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
                    : std::string("request_size must be an int of at least 1, got ") + kind_name(given->kind()));
  return static_cast<std::size_t>(given->as_int());
}

void finish(Batch batch) noexcept {
  for (std::size_t first = 0; first < batch.size();) {
    std::size_t last = first + 1;
    while (last < batch.size() && batch[last].sink.get() == batch[first].sink.get()) ++last;
    const Ref<Sink> sink = batch[first].sink;  // outlives the requests that it lets go
    sink->done(batch.begin() + first, last - first);
    first = last;
  }
}

}  // namespace hami
