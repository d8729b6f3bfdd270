/* Conversions of half precision and bfloat16, for the kernels. */
#ifndef HAMI_CUDA_HALF_H
#define HAMI_CUDA_HALF_H

namespace {

// NVRTC has no cuda_fp16.h, and the CPU no half precision: conversions on bits.
union Bits {
  float value;
  unsigned bits;
};

__device__ float from_half(unsigned short half) {
  const unsigned exponent = half >> 10 & 31u;
  const unsigned fraction = half & 1023u;
  Bits out;
  if (exponent == 0) {  // a subnormal number: fraction * 2^-24
    out.value = static_cast<float>(fraction) * 5.9604644775390625e-8f;
  } else {
    out.bits = (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13;
  }
  out.bits |= static_cast<unsigned>(half & 0x8000u) << 16;
  return out.value;
}

// To the nearest number; halves to the even one.
__device__ unsigned short to_half(float value) {
  Bits in;
  in.value = value;
  const unsigned sign = in.bits >> 16 & 0x8000u;
  in.bits &= 0x7fffffffu;
  if (in.bits > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);   // not a number
  if (in.bits >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);  // rounds to infinity
  if (in.bits < 0x38800000u) {                                                     // below 2^-14: a subnormal number
    return static_cast<unsigned short>(sign | static_cast<unsigned>(rintf(in.value * 16777216.0f)));
  }
  in.bits += 0xfffu + (in.bits >> 13 & 1u);
  return static_cast<unsigned short>(sign | (in.bits - 0x38000000u) >> 13);
}

__device__ float from_bfloat16(unsigned short half) {
  Bits out;
  out.bits = static_cast<unsigned>(half) << 16;
  return out.value;
}

__device__ unsigned short to_bfloat16(float value) {
  Bits in;
  in.value = value;
  if ((in.bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;  // not a number
  return static_cast<unsigned short>((in.bits + 0x7fffu + (in.bits >> 16 & 1u)) >> 16);
}

}  // namespace

#endif
