// Registers each provider's library once, and finds its devices as those that its registration has added.
#include "plugin_providers.hpp"

#include <algorithm>
#include <map>
#include <mutex>

namespace hami_onnx {
namespace {

using Devices = std::vector<const OrtEpDevice*>;

Devices all_devices(const Library& library) {
  const OrtEpDevice* const* devices = nullptr;
  std::size_t size = 0;
  library.check(library.api().GetEpDevices(library.env(), &devices, &size), HAMI_UNAVAILABLE);
  return {devices, devices + size};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char letter : text)
    if (letter == '\n')
      lines.emplace_back();
    else
      lines.back() += letter;
  return lines;
}

// Registration cannot be repeated, so its error is kept too.
struct Registered {
  Devices devices;
  std::string error;
};

Registered register_library(const Library& library, const ProviderLibrary& provider) {
  if (!library.has_plugin_providers())
    return {{},
            "ONNX Runtime " + library.version() +
                " cannot load execution providers; 1.23 or newer is required: pip install -U onnxruntime"};
  try {
    const Devices before = all_devices(library);
    const std::string error = library.take_message(
        library.api().RegisterExecutionProviderLibrary(library.env(), provider.name.c_str(), provider.path.c_str()));
    if (!error.empty()) return {{}, error};
    Devices added;
    for (const OrtEpDevice* device : all_devices(library))
      if (std::find(before.begin(), before.end(), device) == before.end()) added.push_back(device);
    return {added, ""};
  } catch (const hami::Error& error) {
    return {{}, error.what()};
  }
}

}  // namespace

ProviderLibrary ProviderLibrary::of(const std::vector<std::string>& lines) {
  if (lines.size() < 2) throw hami::Error(HAMI_INVALID_ARGUMENT, "a provider is a name and a path, in two lines");
  return {lines[0], lines[1]};
}

const Devices& devices_of(const Library& library, const ProviderLibrary& provider) {
  static std::mutex mutex;  // guards `known`
  // Never destroyed, and no library is unregistered: some end the process when they are.
  static auto& known = *new std::map<std::pair<const Library*, std::string>, Registered>;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = known.try_emplace({&library, provider.path});
  if (is_new) at->second = register_library(library, provider);
  if (!at->second.error.empty())
    throw hami::Error(HAMI_UNAVAILABLE, "the execution provider in \"" + provider.path +
                                            "\" cannot be used with onnxruntime " + library.version() + ": " +
                                            at->second.error);
  return at->second.devices;
}

const char* kind_of(const Library& library, const OrtEpDevice* device) {
  constexpr const char* kKinds[] = {"cpu", "gpu", "npu"};
  const int kind = library.api().HardwareDevice_Type(library.api().EpDevice_Device(device));
  return kind >= 0 && kind < 3 ? kKinds[kind] : "other";
}

void use_provider(const Library& library, OrtSessionOptions* options, const std::string& choice) {
  const std::vector<std::string> lines = lines_of(choice);
  const ProviderLibrary provider = ProviderLibrary::of(lines);
  const Api& api = library.api();
  const Devices& devices = devices_of(library, provider);
  const std::string name = lines.size() > 2 ? lines[2] : "";
  const std::string kind = lines.size() > 3 ? lines[3] : "";
  std::string offered;
  const OrtEpDevice* chosen = nullptr;
  for (const OrtEpDevice* device : devices) {
    const std::string own = api.EpDevice_EpName(device);
    if (!chosen && (name.empty() || name == own) && (kind.empty() || kind == kind_of(library, device))) chosen = device;
    offered += (offered.empty() ? "" : ", ") + own + " on " + kind_of(library, device);
  }
  if (!chosen) {
    const std::string wanted = kind.empty() ? "device" : "device of the kind " + kind;
    throw hami::Error(HAMI_FAILED_PRECONDITION,
                      "the execution provider " + provider.name + " has no " + wanted + " on this machine" +
                          (offered.empty() ? "; is the driver of its hardware installed?" : "; it offers " + offered));
  }
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (std::size_t i = 4; i < lines.size(); ++i) {
    const std::size_t equals = lines[i].find('=');
    keys.push_back(lines[i].substr(0, equals));
    values.push_back(equals == std::string::npos ? "" : lines[i].substr(equals + 1));
  }
  std::vector<const char*> key_texts;
  std::vector<const char*> value_texts;
  for (const std::string& key : keys) key_texts.push_back(key.c_str());
  for (const std::string& value : values) value_texts.push_back(value.c_str());
  library.check(api.SessionOptionsAppendExecutionProvider_V2(options, library.env(), &chosen, 1, key_texts.data(),
                                                             value_texts.data(), keys.size()));
}

}  // namespace hami_onnx
