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

void across(const std::uint8_t* row, int channels, const Column* columns, std::size_t whole, std::size_t width,
            std::int16_t* to) {
  // The first pixel in the lower half, the second in the upper one; an index above 7 gives 0.
  static constexpr std::uint8_t kOrders[3][8] = {
      {0, 255, 255, 255, 1, 255, 255, 255}, {0, 1, 2, 255, 3, 4, 5, 255}, {0, 1, 2, 3, 4, 5, 6, 7}};
  const uint8x8_t order = vld1_u8(kOrders[channels == 1 ? 0 : channels == 3 ? 1 : 2]);
  for (std::size_t x = 0; x < whole; ++x) {
    const uint16x8_t bytes = vmovl_u8(vtbl1_u8(vld1_u8(row + columns[x].first), order));
    const int16x8_t values = vreinterpretq_s16_u16(bytes);
    const int32x4_t first = vmull_n_s16(vget_low_s16(values), columns[x].weights[0]);
    const int32x4_t sum = vmlal_n_s16(first, vget_high_s16(values), columns[x].weights[1]);
    vst1_s16(to + x * kLanes, vshrn_n_s32(sum, 4));
  }
  kPlainPasses.across(row, channels, columns + whole, 0, width - whole, to + whole * kLanes);
}

void down(const std::int16_t* upper, const std::int16_t* lower, const std::int16_t* weights, std::size_t count,
          std::uint8_t* to) {
  const auto products = [](int16x8_t values, std::int16_t weight) {
    return vcombine_s16(vshrn_n_s32(vmull_n_s16(vget_low_s16(values), weight), 16),
                        vshrn_n_s32(vmull_n_s16(vget_high_s16(values), weight), 16));
  };
  for (std::size_t i = 0; i < count; i += 8) {
    const int16x8_t sum =
        vaddq_s16(products(vld1q_s16(upper + i), weights[0]), products(vld1q_s16(lower + i), weights[1]));
    vst1_u8(to + i, vqrshrun_n_s16(sum, 2));
  }
}

}  // namespace

const Passes kNeonPasses{"neon", split, across, down};

}  // namespace hami_image
