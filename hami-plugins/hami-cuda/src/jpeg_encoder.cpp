// Encodes pictures with nvJPEG.
#include "jpeg_encoder.hpp"

#include <algorithm>

namespace hami_cuda {
namespace {

constexpr std::size_t kMostStates = 16;  // each keeps its file, and memory for the largest picture that it has encoded
constexpr int kFromPlanesToInterleaved = 2;  // from NVJPEG_INPUT_RGB to NVJPEG_INPUT_RGBI, and of BGR

}  // namespace

JpegEncoder::JpegEncoder(const Nvjpeg& nvjpeg, const Device& device, unsigned flags)
    : nvjpeg_(nvjpeg),
      api_(nvjpeg.api()),
      device_(device),
      handle_(
          nvjpeg.made(api_.destroy,
                      [&](nvjpegHandle* made) { return api_.create(kHybridBackend, nullptr, nullptr, flags, made); })),
      colored_(new_params()),
      gray_(new_params()) {
  nvjpeg_.check(api_.set_subsampling(gray_.get(), static_cast<int>(JpegSubsampling::kGray), nullptr));
}

NvjpegOwned<nvjpegEncoderParams> JpegEncoder::new_params() const {
  return nvjpeg_.made(api_.params_destroy,
                      [&](nvjpegEncoderParams* made) { return api_.params_create(handle_.get(), made, nullptr); });
}

std::vector<std::string> JpegEncoder::encode(const std::vector<JpegPicture>& pictures, int quality,
                                             JpegSubsampling subsampling, Stream& stream) {
  for (const nvjpegEncoderParams params : {colored_.get(), gray_.get()})
    nvjpeg_.check(api_.set_quality(params, quality, stream.raw()), "refuses the quality");
  nvjpeg_.check(api_.set_subsampling(colored_.get(), static_cast<int>(subsampling), stream.raw()),
                "refuses the subsampling");
  while (states_.size() < std::min(kMostStates, pictures.size()))
    states_.push_back(nvjpeg_.made(api_.encoder_destroy, [&](nvjpegEncoderState* made) {
      return api_.encoder_create(handle_.get(), made, stream.raw());
    }));
  std::vector<std::string> files(pictures.size());
  try {
    for (std::size_t first = 0; first < pictures.size(); first += states_.size()) {
      const std::size_t count = std::min(states_.size(), pictures.size() - first);
      std::vector<bool> started(count);
      for (std::size_t i = 0; i < count; ++i) started[i] = start(states_[i].get(), pictures[first + i], stream.raw());
      stream.wait(waiter_);
      for (std::size_t i = 0; i < count; ++i)
        if (started[i]) files[first + i] = finish(states_[i].get(), stream.raw());
      stream.wait(waiter_);
    }
  } catch (...) {
    stream.api().stream_synchronize(stream.raw());  // the device may be using the states, and writing to the files
    throw;
  }
  return files;
}

bool JpegEncoder::start(nvjpegEncoderState state, const JpegPicture& picture, CUstream stream) const {
  const int format = static_cast<int>(picture.color) + (picture.is_interleaved ? kFromPlanesToInterleaved : 0);
  return succeeds(device_, [&] {
    if (picture.color == JpegColor::kGray)
      return api_.encode_planes(handle_.get(), state, gray_.get(), &picture.image,
                                static_cast<int>(JpegSubsampling::kGray), picture.width, picture.height, stream);
    return api_.encode_colors(handle_.get(), state, colored_.get(), &picture.image, format, picture.width,
                              picture.height, stream);
  });
}

std::string JpegEncoder::finish(nvjpegEncoderState state, CUstream stream) const {
  std::size_t size = 0;
  if (api_.retrieve(handle_.get(), state, nullptr, &size, stream) != kSuccess) return {};
  std::string file(size, '\0');
  auto* const data = reinterpret_cast<unsigned char*>(file.data());
  if (api_.retrieve(handle_.get(), state, data, &size, stream) != kSuccess) return {};
  file.resize(size);
  return file;
}

}  // namespace hami_cuda
