// The passes in plain C++, and the choice of a version.
#include "passes.hpp"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hami_image {
namespace {

void split(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
           const float* offsets, float* const* planes) {
  for (int channel = 0; channel < channels; ++channel)
    for (std::size_t x = 0; x < width; ++x)
      planes[channel][x] = static_cast<float>(row[x * step + channel]) * factors[channel] + offsets[channel];
}

void across(const std::uint8_t* row, int channels, const Column* columns, std::size_t, std::size_t width,
            std::int16_t* to) {
  for (std::size_t x = 0; x < width; ++x, to += kLanes) {
    const std::uint8_t* const at = row + columns[x].first;
    const std::int16_t* const weights = columns[x].weights;
    for (int channel = 0; channel < channels; ++channel) {
      // Without weight, the second pixel may be behind the row.
      const int second = weights[1] ? at[channels + channel] * weights[1] : 0;
      to[channel] = static_cast<std::int16_t>((at[channel] * weights[0] + second) >> 4);
    }
  }
}

void down(const std::int16_t* upper, const std::int16_t* lower, const std::int16_t* weights, std::size_t count,
          std::uint8_t* to) {
  for (std::size_t i = 0; i < count; ++i)
    to[i] = static_cast<std::uint8_t>((((upper[i] * weights[0]) >> 16) + ((lower[i] * weights[1]) >> 16) + 2) >> 2);
}

#if defined(__x86_64__)
// Without __builtin_cpu_supports, for which some compilers have no library.
struct Processor {
  bool sse41 = false;
  bool avx2 = false;

  Processor() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    sse41 = (c & bit_SSE4_1) != 0 && (c & bit_SSSE3) != 0;
    if ((c & bit_OSXSAVE) == 0) return;
    unsigned enabled = 0;
    unsigned high = 0;
    __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    constexpr unsigned kWideRegisters = 6;  // the system saves the registers of SSE and AVX
    if ((enabled & kWideRegisters) != kWideRegisters || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    avx2 = (b & bit_AVX2) != 0;
  }
};
#endif

const Passes& choose() {
  const Passes* usable[3] = {&kPlainPasses};
  int count = 1;
#if defined(__x86_64__)
  const Processor processor;
  if (processor.sse41) usable[count++] = &kSse41Passes;
  if (processor.avx2) usable[count++] = &kAvx2Passes;
#elif defined(__aarch64__)
  usable[count++] = &kNeonPasses;
#endif
  if (const char* const wanted = std::getenv("HAMI_IMAGE_PASSES"))
    for (int i = 0; i < count; ++i)
      if (std::strcmp(usable[i]->name, wanted) == 0) return *usable[i];
  return *usable[count - 1];
}

}  // namespace

const Passes kPlainPasses{"plain", split, across, down};

const Passes& passes() {
  static const Passes& chosen = choose();
  return chosen;
}

}  // namespace hami_image
