/* Arguments of the kernels in image.cu. NVRTC has no standard headers, so this file includes none. */
#ifndef HAMI_CUDA_IMAGE_H
#define HAMI_CUDA_IMAGE_H

#define HAMI_CUDA_MAX_CHANNELS 4

/* One image of bytes of a batch. Strides are in bytes, so planes and interleaved pixels need no conversion. */
struct hami_cuda_image {
  const unsigned char* data;
  void* result; /* contiguous planes */
  long long channel_stride;
  long long row_stride;
  long long pixel_stride;
  int width;
  int height;
};

/* What all images of a launch have in common. */
struct hami_cuda_resize {
  int width;
  int height;
  int channels;
  int swap;        /* 1: the channels are in reverse order in the result */
  int round_first; /* 1: round to a byte before the normalization */
  float factor[HAMI_CUDA_MAX_CHANNELS];
  float offset[HAMI_CUDA_MAX_CHANNELS];
};

#endif
