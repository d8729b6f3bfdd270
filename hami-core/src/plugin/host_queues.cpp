// Host functions: queues of the pipe.
#include "sync/queue.hpp"

#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

Ref<Queue> queue_of(const hami_value& raw) { return Ref<Queue>(&as_queue(borrow(raw))); }

}  // namespace

void add_queues(hami_host& host) {
  HAMI_HOST_ENTRY(host, queue_find, [](hami_context* context, const char* name, std::size_t size, hami_value* out) {
    const Ref<Queue> queue = context->pipe->resources.queue_by_name(std::string(view_of(name, size)));
    *out = release_to_abi(Value::share(*queue));
  });
  HAMI_HOST_ENTRY(host, queue_push, [](const hami_value* queue, const hami_value* value, std::int64_t until) {
    queue_of(*queue)->push(borrow(*value), until);
  });
  HAMI_HOST_ENTRY(host, queue_pop, [](const hami_value* queue, std::int64_t until, hami_value* out) {
    *out = release_to_abi(queue_of(*queue)->pop(until));
  });
}

}  // namespace hami
