// Host functions: queues of the pipe.
#include "sync/queue.hpp"

#include "backend/node_queue_name.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

// Refuses queues of nodes: a value that is pushed there becomes a request, which queue_push does not create.
void check_not_of_node(const std::string& name) {
  if (node_queue_name(name))
    throw Error(ErrorCode::kInvalidArgument,
                "the queue \"" + name + "\" belongs to a node; to send to it, take Send(" + name + ") as a child");
}

Ref<Queue> queue_of(const hami_value& raw) { return Ref<Queue>(&as_queue(borrow(raw))); }

}  // namespace

void add_queues(hami_host& host) {
  HAMI_HOST_ENTRY(host, queue_find, [](hami_context* context, const char* name, std::size_t size, hami_value* out) {
    const std::string wanted(view_of(name, size));
    check_not_of_node(wanted);
    *out = release_to_abi(Value::share(*context->pipe->resources.queue(wanted)));
  });
  HAMI_HOST_ENTRY(host, queue_push, [](const hami_value* queue, const hami_value* value, std::int64_t until) {
    queue_of(*queue)->push(borrow(*value), until);
  });
  HAMI_HOST_ENTRY(host, queue_pop, [](const hami_value* queue, std::int64_t until, hami_value* out) {
    *out = release_to_abi(queue_of(*queue)->pop(until));
  });
}

}  // namespace hami
