// Decodes files with nvJPEG.
#include "jpeg_decoder.hpp"

namespace hami_cuda {
namespace {

constexpr int kThreads = 1;  // of the CPU, for one batch

}  // namespace

JpegDecoder::JpegDecoder(const Nvjpeg& nvjpeg, const Device& device, unsigned flags)
    : nvjpeg_(nvjpeg),
      api_(nvjpeg.api()),
      device_(device),
      handle_(nvjpeg.made(api_.destroy,
                          [&](nvjpegHandle* made) {
                            const nvjpegStatus status = api_.create(kHardwareBackend, nullptr, nullptr, flags, made);
                            if (status == kSuccess || status == kAllocatorFailure) return status;
                            // This GPU has no hardware decoders.
                            return api_.create(kHybridBackend, nullptr, nullptr, flags, made);
                          })),
      parser_(nvjpeg.made(api_.parser_destroy,
                          [&](nvjpegStream* made) { return api_.parser_create(handle_.get(), made); })),
      batch_state_(device, new_state()),
      single_state_(device, new_state()) {}

NvjpegOwned<nvjpegState> JpegDecoder::new_state() const {
  return nvjpeg_.made(api_.state_destroy, [&](nvjpegState* made) { return api_.state_create(handle_.get(), made); });
}

bool JpegDecoder::read_header(std::string_view encoded, JpegHeader& header) {
  unsigned width = 0;
  unsigned height = 0;
  const auto* const data = reinterpret_cast<const unsigned char*>(encoded.data());
  if (api_.parse_header(handle_.get(), data, encoded.size(), parser_.get()) != kSuccess) return false;
  if (api_.frame_size(parser_.get(), &width, &height) != kSuccess) return false;
  header.width = static_cast<int>(width);
  header.height = static_cast<int>(height);
  int orientation = 1;
  if (api_.orientation(parser_.get(), &orientation) != kSuccess || orientation < 1 || orientation > 8) orientation = 1;
  header.orientation = orientation;
  int unsupported = 1;
  header.is_batchable =
      api_.batch_supported(handle_.get(), parser_.get(), &unsupported) == kSuccess && unsupported == 0;
  return true;
}

void JpegDecoder::decode(std::vector<JpegFile>& files, JpegColor color, Stream& stream) {
  std::vector<JpegFile*> together;
  for (JpegFile& file : files)
    if (file.header.is_batchable) together.push_back(&file);
  decode_together(together.data(), together.data() + together.size(), color, stream.raw());
  for (JpegFile& file : files)  // that are not batchable, or broken
    if (!file.is_decoded) decode_alone(file, color, stream.raw());
}

void JpegDecoder::decode_together(JpegFile* const* first, JpegFile* const* last, JpegColor color, CUstream stream) {
  if (first == last) return;
  std::vector<const unsigned char*> data;
  std::vector<std::size_t> sizes;
  std::vector<nvjpegImage> images;
  for (JpegFile* const* file = first; file < last; ++file) {
    data.push_back(reinterpret_cast<const unsigned char*>((*file)->encoded.data()));
    sizes.push_back((*file)->encoded.size());
    images.push_back(image_of(**file, color));
  }
  const int count = static_cast<int>(last - first);
  const auto decode = [&](nvjpegState state) {
    const nvjpegStatus status = api_.batch_start(handle_.get(), state, count, kThreads, static_cast<int>(color));
    if (status != kSuccess) return status;
    return api_.decode_batch(handle_.get(), state, data.data(), sizes.data(), images.data(), stream);
  };
  if (succeeds(device_, [&] { return batch_state_.use(stream, decode); })) {
    for (JpegFile* const* file = first; file < last; ++file) (*file)->is_decoded = true;
    return;
  }
  batch_state_.wait();  // the engines may still write to the planes, before later work of the stream
  if (count == 1) return;
  JpegFile* const* const middle = first + count / 2;  // at least one file is broken: find it in few calls
  decode_together(first, middle, color, stream);
  decode_together(middle, last, color, stream);
}

void JpegDecoder::decode_alone(JpegFile& file, JpegColor color, CUstream stream) {
  nvjpegImage image = image_of(file, color);
  const auto* const data = reinterpret_cast<const unsigned char*>(file.encoded.data());
  const auto decode = [&](nvjpegState state) {
    return api_.decode_one(handle_.get(), state, data, file.encoded.size(), static_cast<int>(color), &image, stream);
  };
  file.is_decoded = succeeds(device_, [&] { return single_state_.use(stream, decode); });
}

nvjpegImage JpegDecoder::image_of(const JpegFile& file, JpegColor color) const {
  nvjpegImage image{};
  const std::size_t width = static_cast<std::size_t>(file.header.width);
  const std::size_t plane = width * static_cast<std::size_t>(file.header.height);
  for (std::size_t i = 0; i < (color == JpegColor::kGray ? 1 : 3); ++i) {
    image.plane[i] = reinterpret_cast<unsigned char*>(file.planes + i * plane);
    image.row_bytes[i] = width;
  }
  return image;
}

}  // namespace hami_cuda
