// The passes for AVX2. Compiled with -mavx2: nothing else may be in this file, nor inline functions of other headers.
#include <immintrin.h>

#include "passes.hpp"

namespace hami_image {
namespace {

constexpr std::size_t kPixels = 8;

__m128i load(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }

// Bytes of four pixels, channel after channel.
__m128i order_of(std::size_t step) {
  if (step == 1) return _mm_setr_epi8(0, 1, 2, 3, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  if (step == 3) return _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
  return _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

template <int kChannels>
void split_channels(const std::uint8_t* row, std::size_t step, std::size_t width, const float* factors,
                    const float* offsets, float* const* planes) {
  const __m128i order = order_of(step);
  const auto put = [&](int channel, std::size_t x, __m128i bytes) {
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    _mm256_storeu_ps(planes[channel] + x, _mm256_add_ps(_mm256_mul_ps(values, _mm256_set1_ps(factors[channel])),
                                                        _mm256_set1_ps(offsets[channel])));
  };
  std::size_t x = 0;
  for (; (x + kPixels / 2) * step + sizeof(__m128i) <= width * step; x += kPixels) {
    const __m128i first = _mm_shuffle_epi8(load(row + x * step), order);
    const __m128i second = _mm_shuffle_epi8(load(row + (x + kPixels / 2) * step), order);
    const __m128i low = _mm_unpacklo_epi32(first, second);  // eight bytes of channel 0, then of channel 1
    put(0, x, low);
    if (kChannels == 1) continue;
    put(1, x, _mm_srli_si128(low, kPixels));
    const __m128i high = _mm_unpackhi_epi32(first, second);
    put(2, x, high);
    if (kChannels == 4) put(3, x, _mm_srli_si128(high, kPixels));
  }
  for (; x < width; ++x)
    for (int channel = 0; channel < kChannels; ++channel)
      planes[channel][x] = static_cast<float>(row[x * step + channel]) * factors[channel] + offsets[channel];
}

void split(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
           const float* offsets, float* const* planes) {
  if (channels == 1) return split_channels<1>(row, step, width, factors, offsets, planes);
  if (channels == 3) return split_channels<3>(row, step, width, factors, offsets, planes);
  split_channels<4>(row, step, width, factors, offsets, planes);
}

}  // namespace

const Passes kAvx2Passes{"avx2", split};

}  // namespace hami_image
