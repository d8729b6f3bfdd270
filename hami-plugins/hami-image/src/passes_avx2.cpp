// The passes for AVX2. Compiled with -mavx2: nothing else may be in this file, nor inline functions of other headers.
#include <immintrin.h>

#include "passes_x86.hpp"

namespace hami_image {
namespace {

constexpr std::size_t kPixels = 8;

__m128i load(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }

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
  split_rest<kChannels>(row, step, x, width, factors, offsets, planes);
}

// The sums of two pixels, each as four 32-bit integers.
__m256i sums(const std::uint8_t* row, const Column& one, const Column& other, __m256i pairs) {
  const auto bytes = [row](const Column& column) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + column.first));
  };
  const auto weights = [](const Column& column) {
    return _mm_shuffle_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&column)), 0x55);
  };
  const __m256i values = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes(one)), bytes(other), 1);
  const __m256i factors = _mm256_inserti128_si256(_mm256_castsi128_si256(weights(one)), weights(other), 1);
  return _mm256_srai_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(values, pairs), factors), 4);
}

void across(const std::uint8_t* row, int channels, const Column* columns, std::size_t whole, std::size_t width,
            std::int16_t* to) {
  const __m256i pairs = _mm256_broadcastsi128_si256(pairs_of(channels));
  std::size_t x = 0;
  for (; x + 4 <= whole; x += 4)  // the pack joins the lower halves, then the upper ones
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + x * kLanes),
                        _mm256_packs_epi32(sums(row, columns[x], columns[x + 2], pairs),
                                           sums(row, columns[x + 1], columns[x + 3], pairs)));
  kPlainPasses.across(row, channels, columns + x, 0, width - x, to + x * kLanes);
}

void down(const std::int16_t* upper, const std::int16_t* lower, const std::int16_t* weights, std::size_t count,
          std::uint8_t* to) {
  const __m256i above = _mm256_set1_epi16(weights[0]);
  const __m256i below = _mm256_set1_epi16(weights[1]);
  const __m256i half = _mm256_set1_epi16(2);
  const auto at = [&](std::size_t i) {
    const __m256i a = _mm256_mulhi_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(upper + i)), above);
    const __m256i b = _mm256_mulhi_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(lower + i)), below);
    return _mm256_srai_epi16(_mm256_add_epi16(_mm256_add_epi16(a, b), half), 2);
  };
  for (std::size_t i = 0; i < count; i += 32)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_permute4x64_epi64(_mm256_packus_epi16(at(i), at(i + 16)), 0xD8));
}

}  // namespace

const Passes kAvx2Passes{"avx2", split, across, down};

}  // namespace hami_image
