// The pipe's queues for plugins.
#include "sync/queue.hpp"

#include "backend/node_queue_name.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

// A value that is pushed to a node's queue becomes a request, which this function does not create.
void check_no_nodes(const std::string& name) {
  if (node_queue_name(name))
    throw Error(ErrorCode::kInvalidArgument,
                "the queue \"" + name + "\" belongs to a node; take Send(" + name + ") as a child");
}

Ref<Queue> queue_in(const hami_value& raw) { return Ref<Queue>(&as_queue(borrow(raw))); }

}  // namespace

void add_queues(hami_host& host) {
  HAMI_HOST_ENTRY(host, queue_find, [](hami_context* context, const char* name, std::size_t size, hami_value* out) {
    return guarded([&] {
      const std::string wanted(text_of(name, size));
      check_no_nodes(wanted);
      *out = release_to_abi(Value::share(*context->pipe->resources.queue(wanted)));
    });
  });
  HAMI_HOST_ENTRY(host, queue_push, [](const hami_value* queue, const hami_value* value, std::int64_t until) {
    return guarded([&] { queue_in(*queue)->push(borrow(*value), until); });
  });
  HAMI_HOST_ENTRY(host, queue_pop, [](const hami_value* queue, std::int64_t until, hami_value* out) {
    return guarded([&] { *out = release_to_abi(queue_in(*queue)->pop(until)); });
  });
}

}  // namespace hami
