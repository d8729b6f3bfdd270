// libFuzzer target: any bytes as a configuration, planned with the core's backends.
#include <cstddef>
#include <cstdint>

#include "checks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hami::fuzz::check_configuration({reinterpret_cast<const char*>(data), size});
  return 0;
}
