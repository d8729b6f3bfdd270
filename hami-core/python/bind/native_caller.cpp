// NativeCaller: the functions of hami/caller.h.
#include "native_caller.hpp"

#include <string>
#include <utility>
#include <vector>

#include "request/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

NativeCaller& caller_of(hami_caller* caller) noexcept { return *static_cast<NativeCaller*>(caller); }
// hami_submitted is Call for plugins.
Call* call_of(hami_submitted* started) noexcept { return reinterpret_cast<Call*>(started); }

Dict dict_of(const hami_text* keys, const hami_value* values, std::size_t n) {
  Dict dict;
  dict.reserve(n + 1);  // and `result`
  for (std::size_t i = 0; i < n; ++i) {
    const std::string_view key = view_of(keys[i].data, keys[i].size);
    check_utf8("a key", key);
    if (dict.contains(key))
      throw Error(ErrorCode::kInvalidArgument, "a request has the key " + in_quotes(std::string(key)) + " twice");
    dict.enter(std::string(key), borrow(values[i]));
  }
  return dict;
}

void complete(Call& call, hami_submit_done done, void* data) noexcept {
  const Error* const failed = call.error(0);
  hami_error* const error = failed ? make_error(*failed) : nullptr;
  hami_dict request{failed ? nullptr : &const_cast<Dict&>(call.dict(0)), nullptr};
  done(data, error, failed ? nullptr : &request);
}

hami_error* submit(hami_caller* caller, const hami_text* keys, const hami_value* values, std::size_t n,
                   std::int64_t timeout, hami_submit_done done, void* data, hami_submitted** started) noexcept {
  return catch_error([&] {
    Ref<Call> call = caller_of(caller).submit(dict_of(keys, values, n), timeout, done, data);
    if (started) *started = reinterpret_cast<hami_submitted*>(call.detach());  // as call_of
  });
}

constexpr hami_caller_table kTable = {
    sizeof(hami_caller_table),
    0,
    fill_host,
    [](hami_caller* caller) { caller_of(caller).retain(); },
    [](hami_caller* caller) { caller_of(caller).release(); },
    submit,
    [](hami_submitted* started) -> std::int32_t { return call_of(started)->give_up(Error::cancelled()); },
    [](hami_submitted* started) { call_of(started)->release(); },
    [](hami_value* out) -> hami_error* {
  return catch_error([&] { *out = release_to_abi(Value::share(*NodeVisits::recorded())); });
},
};

}  // namespace

NativeCaller::NativeCaller(std::weak_ptr<PipeState> pipe) : hami_caller{&kTable}, pipe_(std::move(pipe)) {}

void NativeCaller::set_pipe(std::weak_ptr<PipeState> pipe) {
  const MutexLock lock(mutex_);
  pipe_ = std::move(pipe);
}

Ref<Call> NativeCaller::submit(Dict request, Nanoseconds timeout, hami_submit_done done, void* data) {
  std::shared_ptr<PipeState> pipe;
  {
    const MutexLock lock(mutex_);
    pipe = pipe_.lock();
  }
  if (!pipe) throw Error::pipe_closed();
  std::vector<Dict> requests;
  requests.push_back(std::move(request));
  try {
    return pipe->start(std::move(requests), timeout, InlinePolicy::kEventLoop,
                       [done, data](Call& call) { complete(call, done, data); });
  } catch (const Interrupted& interrupt) {  // only on the main thread, after `done` was called
    store_interrupt(interrupt);
    return {};
  }
}

py::capsule to_capsule(Ref<NativeCaller> caller) {
  hami_caller* const raw = caller.get();
  PyObject* const capsule = PyCapsule_New(raw, HAMI_CALLER_NAME, [](PyObject* object) {
    caller_of(static_cast<hami_caller*>(PyCapsule_GetPointer(object, HAMI_CALLER_NAME))).release();
  });
  if (!capsule) throw py::error_already_set();
  caller.detach();
  return py::reinterpret_steal<py::capsule>(capsule);
}

void register_native_values(py::module_& module) {
  module.def("value_of", [](std::uintptr_t address) {
    // hami_serve passes an address of its own
    return to_python(borrow(*reinterpret_cast<const hami_value*>(address)));
  }, py::arg("address"), "Return the object for the hami_value at an address, which is borrowed.");
}

}  // namespace hami::bind
