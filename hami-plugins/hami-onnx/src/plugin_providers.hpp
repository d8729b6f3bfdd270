// Execution providers that are libraries of their own: registered with ONNX Runtime, their devices, sessions that use them.
#pragma once

#include <string>
#include <vector>

#include "library.hpp"

namespace hami_onnx {

// A library of an execution provider, as OnnxModel has found it.
struct ProviderLibrary {
  std::string name;  // with which it is registered: some providers call themselves so
  std::string path;

  // Reads "name", "path" and what follows, in lines. hami::Error(HAMI_INVALID_ARGUMENT) without two lines.
  static ProviderLibrary of(const std::vector<std::string>& lines);
};

// Returns the devices that a provider's library offers; registers it on first use, for the life of the process.
// hami::Error(HAMI_UNAVAILABLE) has ONNX Runtime's reason.
const std::vector<const OrtEpDevice*>& devices_of(const Library& library, const ProviderLibrary& provider);

// "cpu", "gpu" or "npu".
const char* kind_of(const Library& library, const OrtEpDevice* device);

// Lets a session use a provider. `choice` has the lines name, path, the provider's own name for its device ("": that of its
// first device), the kind of the device ("": any), and an option, as key=value, in each further line.
// Throws hami::Error(HAMI_FAILED_PRECONDITION) if no device fits.
void use_provider(const Library& library, OrtSessionOptions* options, const std::string& choice);

}  // namespace hami_onnx
