// The passes for NEON, which every 64-bit ARM processor has.
#include <arm_neon.h>

#include "passes.hpp"

namespace hami_image {
namespace {

constexpr std::size_t kPixels = 8;

void put(float* to, uint8x8_t bytes, float factor, float offset) {
  const uint16x8_t wide = vmovl_u8(bytes);
  const float32x4_t add = vdupq_n_f32(offset);
  const float32x4_t low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
  const float32x4_t high = vcvtq_f32_u32(vmovl_u16(vget_high_u16(wide)));
  vst1q_f32(to, vaddq_f32(vmulq_n_f32(low, factor), add));
  vst1q_f32(to + 4, vaddq_f32(vmulq_n_f32(high, factor), add));
}

void split(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
           const float* offsets, float* const* planes) {
  std::size_t x = 0;
  for (; x + kPixels <= width; x += kPixels) {
    const std::uint8_t* const at = row + x * step;
    if (step == 1) {
      put(planes[0] + x, vld1_u8(at), factors[0], offsets[0]);
    } else if (step == 3) {
      const uint8x8x3_t bytes = vld3_u8(at);
      for (int channel = 0; channel < channels; ++channel)
        put(planes[channel] + x, bytes.val[channel], factors[channel], offsets[channel]);
    } else {
      const uint8x8x4_t bytes = vld4_u8(at);
      for (int channel = 0; channel < channels; ++channel)
        put(planes[channel] + x, bytes.val[channel], factors[channel], offsets[channel]);
    }
  }
  for (; x < width; ++x)
    for (int channel = 0; channel < channels; ++channel)
      planes[channel][x] = static_cast<float>(row[x * step + channel]) * factors[channel] + offsets[channel];
}

}  // namespace

const Passes kNeonPasses{"neon", split};

}  // namespace hami_image
