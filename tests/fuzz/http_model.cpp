// With the headers of the core: those of plugins, which the native door includes, have classes of the same names.
#include "http_model.hpp"

#include <optional>
#include <string>

#include "failing_allocations.hpp"
#include "plugin/host_table.hpp"

namespace hami::fuzz {
namespace {

hami_error* submit(hami_caller*, const hami_text* keys, const hami_value* values, std::size_t n, std::int64_t,
                   hami_submit_done done, void* data, hami_submitted** started) {
  std::optional<testing::Spared> core(std::in_place);  // whose own failures are errors, and never exceptions
  Dict dict;
  for (std::size_t i = 0; i < n; ++i) dict.enter(std::string(keys[i].data, keys[i].size), borrow(values[i]));
  const Value result = *dict.find("data");
  dict.enter("result", result);
  const hami_dict request{&dict, nullptr};
  if (started) *started = nullptr;
  core.reset();
  done(data, nullptr, &request);
  return nullptr;
}

constexpr hami_caller_table kTable = {
    sizeof(hami_caller_table),
    0,
    fill_host,
    [](hami_caller*) {},
    [](hami_caller*) {},
    submit,
    [](hami_submitted*) -> std::int32_t { return 0; },
    [](hami_submitted*) {},
    [](hami_value* out) -> hami_error* {
  *out = {};
  return nullptr;
},
};

}  // namespace

hami_caller* identity() noexcept {
  static hami_caller caller{&kTable};
  return &caller;
}

hami_error* fill(hami_host* host) { return fill_host(host); }

}  // namespace hami::fuzz
