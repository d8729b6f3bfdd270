// libFuzzer target: plans any bytes as a configuration, with the backends of the core.
#include <cstddef>
#include <cstdint>

#include "checks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hami::fuzz::check_configuration({reinterpret_cast<const char*>(data), size});
  return 0;
}
