// The backends that a plugin calls: those in its brackets, those lent to it, and instances by their name.
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

std::vector<Request*> alive(hami_dict* const* items, std::size_t n) {
  std::vector<Request*> requests;
  requests.reserve(n);
  for (std::size_t i = 0; i < n; ++i)
    if (Request& request = request_of(*items[i]); request.alive()) requests.push_back(&request);
  return requests;
}

Backend& callable(const hami_backend& child) {
  if (child.thread != std::thread::id() && child.thread != std::this_thread::get_id())
    throw Error(ErrorCode::kInvalidArgument,
                child.backend->label() + " runs on one thread only, and was called on another");
  return *child.backend;
}

}  // namespace

Init& init_of(const hami_context& context) {
  if (!context.init)
    throw Error(ErrorCode::kInvalidArgument,
                context.label + " is made already: instances are looked up during its create");
  return *context.init;
}

void add_children(hami_host& host) {
  HAMI_HOST_ENTRY(host, backend_forward, [](hami_backend* backend, hami_dict* const* items, std::size_t n) {
    return guarded([&] {
      const std::vector<Request*> requests = alive(items, n);
      if (!requests.empty()) callable(*backend).forward(Batch(requests));
    });
  });
  HAMI_HOST_ENTRY(host, backend_forward_with_dep,
                  [](hami_backend* backend, hami_dict* const* items, std::size_t n, hami_backend* dependency) {
    return guarded([&] {
      const std::vector<Request*> requests = alive(items, n);
      if (!requests.empty()) callable(*backend).forward_with_dep(Batch(requests), callable(*dependency));
    });
  });
  HAMI_HOST_ENTRY(host, backend_range, [](const hami_backend* backend, std::uint64_t* min, std::uint64_t* max) {
    const Range range = backend->backend->range();
    *min = range.min;
    *max = range.declared() ? range.max : 0;
  });
  HAMI_HOST_ENTRY(host, backend_label, [](const hami_backend* backend) { return text_of(backend->backend->label()); });
  HAMI_HOST_ENTRY(host, backend_inject, [](hami_backend* backend, hami_backend* dependency) {
    return guarded([&] { callable(*backend).inject_dependency(dependency->backend); });
  });
  HAMI_HOST_ENTRY(host, backend_find,
                  [](hami_context* context, const char* name, std::size_t size, hami_backend** out) {
    return guarded([&] {
      Plan plan;
      check_utf8("the name of an instance", text_of(name, size));
      plan.instance = std::string(text_of(name, size));
      plan.label = plan.instance;
      BackendPtr instance = init_of(*context).make(plan);
      instance->describe(plan.label, instance->traits());
      auto found = std::make_unique<hami_backend>(std::move(instance));
      *out = found.get();
      context->found.push_back(std::move(found));
    });
  });
}

}  // namespace hami
