// Host functions: the backends that a plugin calls. These are its children, its dependencies, and instances by name.
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"

namespace hami {
namespace {

// Items that have failed do not run.
std::vector<Request*> open_requests(hami_dict* const* items, std::size_t n) {
  std::vector<Request*> requests;
  requests.reserve(n);
  for (std::size_t i = 0; i < n; ++i)
    if (Request& request = request_of(*items[i]); request.alive()) requests.push_back(&request);
  return requests;
}

// The backend of a call. Error(kInvalidArgument) if it must be called on another thread.
Backend& on_required_thread(const hami_backend& child) {
  if (child.required_thread != std::thread::id() && child.required_thread != std::this_thread::get_id())
    throw Error(ErrorCode::kInvalidArgument,
                child.backend->label() +
                    " has a dedicated thread and was called on another one; call it only during "
                    "the plugin's own create and forward, on the thread of that call");
  return *child.backend;
}

}  // namespace

Init& init_of(const hami_context& context) {
  if (!context.init)
    throw Error(ErrorCode::kInvalidArgument,
                context.label + " looked up an instance after its create returned; call backend_find during create");
  return *context.init;
}

void add_children(hami_host& host) {
  HAMI_HOST_ENTRY(host, backend_forward, [](hami_backend* backend, hami_dict* const* items, std::size_t n) {
    const std::vector<Request*> requests = open_requests(items, n);
    if (requests.empty()) return;
    const PluginCall core = PluginCall::of_core();
    on_required_thread(*backend).forward(Batch(requests));
  });
  HAMI_HOST_ENTRY(host, backend_forward_with_dep,
                  [](hami_backend* backend, hami_dict* const* items, std::size_t n, hami_backend* dependency) {
    const std::vector<Request*> requests = open_requests(items, n);
    if (requests.empty()) return;
    const PluginCall core = PluginCall::of_core();
    on_required_thread(*backend).forward_with_dep(Batch(requests), on_required_thread(*dependency));
  });
  HAMI_HOST_ENTRY(host, backend_range, [](const hami_backend* backend, std::uint64_t* min, std::uint64_t* max) {
    *min = 1;  // where the range cannot be determined: no limit
    *max = 0;
    const Range range = backend->backend->range();
    *min = range.min;
    *max = range.is_auto() ? HAMI_AUTO : range.declared() ? range.max : 0;
  });
  HAMI_HOST_ENTRY(host, backend_label, [](const hami_backend* backend) { return text_of(backend->backend->label()); });
  HAMI_HOST_ENTRY(host, backend_inject, [](hami_backend* backend, hami_backend* dependency) {
    on_required_thread(*backend).inject_dependency(dependency->backend);
  });
  HAMI_HOST_ENTRY(host, backend_find,
                  [](hami_context* context, const char* name, std::size_t size, hami_backend** out) {
    Plan plan;
    check_utf8("the name of an instance", view_of(name, size));
    plan.instance = std::string(view_of(name, size));
    plan.label = plan.instance;
    BackendPtr instance = init_of(*context).make(plan);
    instance->describe(plan.label, instance->traits());
    auto found = std::make_unique<hami_backend>(std::move(instance));
    *out = found.get();
    context->found.push_back(std::move(found));
  });
}

}  // namespace hami
