// JpegEncoder: encodes pictures on the device as JPEG files with nvJPEG.
#pragma once

#include <string>
#include <vector>

#include "nvjpeg.hpp"

namespace hami_cuda {

enum class JpegSubsampling { k444 = 0, k422 = 1, k420 = 2, k440 = 3, kGray = 6 };  // nvjpegChromaSubsampling_t

// A picture of bytes in device memory.
struct JpegPicture {
  nvjpegImage image{};  // its planes; if it is interleaved, the first one has all channels
  JpegColor color = JpegColor::kRgb;
  bool is_interleaved = false;
  int width = 0;
  int height = 0;
};

// Encodes one batch at a time.
class JpegEncoder {
 public:
  JpegEncoder(const Nvjpeg& nvjpeg, const Device& device, unsigned flags);

  // The files of pictures, of which an empty one could not be encoded. Blocks until the work of the stream is done.
  std::vector<std::string> encode(const std::vector<JpegPicture>& pictures, int quality, JpegSubsampling subsampling,
                                  Stream& stream);

 private:
  NvjpegOwned<nvjpegEncoderParams> new_params() const;
  bool start(nvjpegEncoderState state, const JpegPicture& picture, CUstream stream) const;
  std::string finish(nvjpegEncoderState state, CUstream stream) const;

  const Nvjpeg& nvjpeg_;
  const NvjpegApi& api_;
  const Device& device_;
  const NvjpegOwned<nvjpegHandle> handle_;
  const NvjpegOwned<nvjpegEncoderParams> colored_;
  const NvjpegOwned<nvjpegEncoderParams> gray_;
  std::vector<NvjpegOwned<nvjpegEncoderState>> states_;  // of the pictures that are encoded at a time
  Waiter waiter_;
};

using JpegEncoders = JpegCoders<JpegEncoder>;

}  // namespace hami_cuda
