// Checks the tables of a plugin, and creates the backend classes that they describe.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <utility>

#include "plugin/handles.hpp"
#include "plugin/library.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

[[noreturn]] void reject(const std::string& why) { throw Error(ErrorCode::kPlugin, why); }

// A copy of the fields that the plugin's struct has; later fields are zero. The first `required` bytes must be present.
template <class Table>
Table read_table(const Table* given, std::size_t required, const std::string& what) {
  if (!given) reject(what + " is missing");
  if (given->struct_size < required)
    reject(what + " has struct_size " + std::to_string(given->struct_size) + "; hami/abi.h requires at least " +
           std::to_string(required));
  Table table{};
  std::memcpy(&table, given, std::min<std::size_t>(given->struct_size, sizeof table));
  return table;
}

ThreadMode thread_mode_in(std::uint32_t flags, const std::string& what) {
  switch (flags & HAMI_THREAD_MASK) {
    case HAMI_THREAD_DEDICATED: return ThreadMode::kDedicated;
    case HAMI_THREAD_SERIALIZED: return ThreadMode::kSerialized;
    case HAMI_THREAD_CONCURRENT: return ThreadMode::kConcurrent;
    default:
      reject(what + " declares an unknown thread mode, flags=" + std::to_string(flags) +
             "; see HAMI_THREAD_MASK in hami/abi.h");
  }
}

Brackets brackets_of(const hami_backend_class& cls, const std::string& what) {
  if (cls.max_children == 0 && cls.min_children == 0) return {};
  if (cls.min_children > cls.max_children)
    reject(what + " declares min_children=" + std::to_string(cls.min_children) +
           ", which is above max_children=" + std::to_string(cls.max_children));
  const std::size_t max = cls.max_children == HAMI_MANY ? Phase::kMany : cls.max_children;
  return {cls.min_children > 0, {Phase{std::max<std::size_t>(1, cls.min_children), max}}};
}

// BackendClass::range of the class.
std::string describe_range(const hami_backend_class& cls) {
  if (const std::optional<Range> range = declared_range(cls)) {
    const std::string min = std::to_string(range->min);
    return range->declared() ? min + " to " + show_max(range->max) : min + " or more";
  }
  return cls.range ? "as its instances declare" : cls.max_children > 0 ? kNarrowest : "";
}

std::vector<ParamSpec> params_of(const hami_backend_class& cls, const std::string& what) {
  try {
    return parse_param_specs(cls.params ? cls.params : "");
  } catch (const Error& error) {
    reject(what + ": " + error.message());
  }
}

ClassPtr name_for_expression(const hami_backend_class& cls, const std::string& what, const std::string& owner) {
  GeneratedBody body{cls.name, cls.expression, {}};
  for (const ParamSpec& spec : params_of(cls, what)) {
    if (spec.required)
      reject(what + " stands for an expression, so its parameter " + in_quotes(spec.name) + " needs a default");
    if (!spec.fallback.is_none()) body.defaults.emplace_back(spec.name, spec.fallback);
  }
  try {
    return generated_class(std::move(body), owner);
  } catch (const SyntaxError& error) {
    reject(escape_invalid_utf8(message_with_caret(what + " stands for an expression that is not valid: " + error.what(),
                                                  cls.expression, error.span, "", error.hint)));
  }
}

// BackendClass::absorbs of the class.
std::vector<std::string> absorbs_of(const hami_backend_class& native, const BackendClass& cls,
                                    const std::string& what) {
  std::vector<std::string> names;
  const std::string text = native.absorbs ? native.absorbs : "";
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
  }
  if (names.empty()) return names;
  if (!native.absorb) reject(what + " has absorbs, and no function absorb");
  const auto is_fuse = [](const ParamSpec& spec) { return spec.name == kFuse && spec.type == ParamType::kBool; };
  if (std::none_of(cls.params.begin(), cls.params.end(), is_fuse))
    reject(what + " has absorbs, so it needs the parameter \"fuse: bool = true\", which turns it off");
  return names;
}

// BackendClass::default_child of the class.
std::string default_child_of(const hami_backend_class& native, const std::string& what) {
  if (!native.default_child) return "";
  if (!is_ident(native.default_child))
    reject(what + " has a default_child that is not a valid backend name: " + in_quotes(native.default_child));
  if (native.min_children > 1 || native.max_children == 0)
    reject(what + " has a default_child, so it must accept one backend in its brackets: min_children=" +
           std::to_string(native.min_children) + ", max_children=" + std::to_string(native.max_children));
  return native.default_child;
}

// BackendClass::by_device of the class.
DeviceChoice by_device_of(const hami_backend_class& native, const BackendClass& cls, const std::string& what) {
  DeviceChoice choice = DeviceChoice::kNone;
  switch (native.by_device) {
    case 0: return choice;
    case HAMI_EACH_REQUEST_BY_DEVICE: choice = DeviceChoice::kEachRequest; break;
    case HAMI_WHOLE_BATCH_BY_DEVICE: choice = DeviceChoice::kWholeBatch; break;
    case HAMI_EACH_REQUEST_BY_ENGINE: choice = DeviceChoice::kEngine; break;
    default: reject(what + " has an unknown by_device, " + std::to_string(native.by_device) + "; see hami/abi.h");
  }
  if (!cls.device.empty()) reject(what + " is for a device, so it cannot have by_device");
  if (!cls.absorbs.empty()) reject(what + " has by_device, so it cannot absorb other backends");
  if (!cls.brackets.phases.empty()) reject(what + " has by_device, so it cannot have brackets");
  if (cls.traits.non_blocking) reject(what + " has by_device, so it cannot be non-blocking");
  return choice;
}

// BackendClass::device of the class.
std::string device_of(const hami_backend_class& native, const std::string& what) {
  if (!native.device) return "";
  if (!is_ident(native.device))
    reject(what + " has a device that is not a kind of device, such as \"cuda\": " + in_quotes(native.device));
  return native.device;
}

ClassPtr class_of(const hami_backend_class* given, std::size_t number, const std::string& plugin,
                  const std::string& owner, const std::string& library) {
  std::string what = "class " + std::to_string(number) + " of plugin " + in_quotes(plugin);
  const auto native = read_table(given, offsetof(hami_backend_class, forward) + sizeof given->forward, what);
  if (!native.name || !*native.name) reject(what + " has no name");
  what = "class " + in_quotes(native.name) + " of plugin " + in_quotes(plugin);
  if (!is_ident(native.name))
    reject(what + " does not have a valid backend name: use letters, digits and _, not starting with a digit");
  if (native.expression) return name_for_expression(native, what, owner);
  if (!native.create || !native.destroy || !native.forward) reject(what + " has no create, destroy or forward");
  BackendClass cls;
  cls.name = native.name;
  cls.owner = owner;
  cls.doc = escape_invalid_utf8(native.doc ? native.doc : "");
  cls.params = params_of(native, what);
  cls.brackets = brackets_of(native, what);
  if (native.max_items > 0 && native.min_items > native.max_items)
    reject(what + " declares min_items=" + std::to_string(native.min_items) +
           ", which is above max_items=" + std::to_string(native.max_items));
  cls.range = describe_range(native);
  cls.traits.thread = thread_mode_in(native.flags, what);
  cls.traits.non_blocking = (native.flags & HAMI_NON_BLOCKING) != 0;
  if (cls.traits.non_blocking && cls.traits.thread == ThreadMode::kDedicated)
    reject(
        what +
        " is non-blocking, which needs HAMI_THREAD_SERIALIZED or HAMI_THREAD_CONCURRENT; it is HAMI_THREAD_DEDICATED");
  cls.traits.lightweight = (native.flags & HAMI_LIGHTWEIGHT) != 0;
  if (cls.traits.lightweight && cls.traits.thread == ThreadMode::kDedicated)
    reject(what +
           " is lightweight, but each instance has a thread: HAMI_LIGHTWEIGHT needs HAMI_THREAD_SERIALIZED or "
           "HAMI_THREAD_CONCURRENT; it is HAMI_THREAD_DEDICATED");
  if (native.flags & HAMI_LIGHTWEIGHT_ON_DEVICE) cls.traits.instances_on_device = Traits::kAnyCount;
  cls.uses_python = (native.flags & HAMI_NEEDS_GIL) != 0;
  cls.traits.idempotent = (native.flags & HAMI_NOT_IDEMPOTENT) == 0;
  cls.absorbs = absorbs_of(native, cls, what);
  cls.default_child = default_child_of(native, what);
  cls.device = device_of(native, what);
  cls.by_device = by_device_of(native, cls, what);
  std::string origin = "backend " + cls.name + " of plugin " + plugin + (library.empty() ? "" : " (" + library + ")");
  cls.create = [native, origin = std::move(origin), choice = cls.by_device] {
    return choose_by_device(choice, make_native_backend(native, origin));
  };
  return std::make_shared<BackendClass>(std::move(cls));
}

}  // namespace

std::optional<Range> declared_range(const hami_backend_class& cls) {
  if (cls.min_items == 0 && cls.max_items == 0) return std::nullopt;
  return range_of_abi(std::max<std::uint64_t>(1, cls.min_items), cls.max_items);
}

Range range_of_abi(std::uint64_t min, std::uint64_t max) noexcept {
  if (max == 0) return {min, Range::kUnbounded};
  return {min, std::min<std::uint64_t>(max, Range::kAuto)};  // HAMI_AUTO is above it
}

NativePlugin read_plugin(const hami_plugin& given, const std::string& owner, const std::string& library) {
  const auto plugin = read_table(&given, offsetof(hami_plugin, n_classes) + sizeof given.n_classes, "its hami_plugin");
  if (!plugin.name || !*plugin.name) reject("its hami_plugin has no name");
  if (plugin.n_classes > 0 && !plugin.classes) reject("plugin " + in_quotes(plugin.name) + " has no table of classes");
  NativePlugin read{escape_invalid_utf8(plugin.name),
                    escape_invalid_utf8(plugin.version ? plugin.version : ""),
                    std::to_string(plugin.abi_major) + "." + std::to_string(plugin.abi_minor),
                    {}};
  std::set<std::string> names;
  std::set<std::pair<std::string, std::string>> names_and_devices;
  for (std::size_t i = 0; i < plugin.n_classes; ++i) {
    read.classes.push_back(class_of(plugin.classes[i], i, read.name, owner, library));
    const BackendClass& cls = *read.classes.back();
    names.insert(cls.name);
    if (!names_and_devices.emplace(cls.name, cls.device).second)
      reject("plugin " + in_quotes(read.name) + " has two classes " + in_quotes(cls.name) +
             (cls.device.empty() ? "" : " for " + cls.device));
  }
  for (const ClassPtr& cls : read.classes)
    for (const std::string& name : cls->absorbs)
      if (names.count(name) == 0)
        reject("class " + in_quotes(cls->name) + " of plugin " + in_quotes(read.name) + " absorbs " + in_quotes(name) +
               ", which is not a class of this plugin");
  return read;
}

}  // namespace hami
