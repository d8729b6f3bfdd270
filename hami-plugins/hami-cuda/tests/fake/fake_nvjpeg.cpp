// nvJPEG without a GPU. A file is FF D8, then one byte each: width, height, EXIF orientation, and how it decodes: 'b'
// in a batch, 's' alone only, 'x' is broken, 'u' has an unknown header. Pixel x, y of channel c is x + 16 y + 64 c, in
// the order RGB.
#include <cstddef>

#define FAKE extern "C" __attribute__((visibility("default"))) int

namespace {
constexpr int kBadJpeg = 3;
constexpr int kBgr = 4;
const unsigned char* parsed = nullptr;
int batch_count = 0;
int batch_format = 0;
int batches = 0;
int singles = 0;

struct Image {
  unsigned char* plane[4];
  std::size_t row_bytes[4];
};

int write(const unsigned char* file, int format, const Image& image) {
  if (file[5] == 'x') return kBadJpeg;
  const int channels = format == 2 ? 1 : 3;
  for (int channel = 0; channel < channels; ++channel)
    for (int y = 0; y < file[3]; ++y)
      for (int x = 0; x < file[2]; ++x)
        image.plane[format == kBgr ? 2 - channel : channel]
                   [static_cast<std::size_t>(y) * image.row_bytes[0] + static_cast<std::size_t>(x)] =
            static_cast<unsigned char>(x + 16 * y + 64 * channel);
  return 0;
}
}  // namespace

FAKE nvjpegCreateEx(int, void*, void*, unsigned, void**) { return 0; }
FAKE nvjpegJpegStateCreate(void*, void**) { return 0; }
FAKE nvjpegJpegStreamCreate(void*, void**) { return 0; }
FAKE nvjpegJpegStreamParseHeader(void*, const unsigned char* data, std::size_t size, void*) {
  parsed = data;
  return size < 6 || data[5] == 'u' ? kBadJpeg : 0;
}
FAKE nvjpegJpegStreamGetFrameDimensions(void*, unsigned* width, unsigned* height) {
  *width = parsed[2];
  *height = parsed[3];
  return 0;
}
FAKE nvjpegJpegStreamGetExifOrientation(void*, int* orientation) { return *orientation = parsed[4], 0; }
FAKE nvjpegDecodeBatchedSupported(void*, void*, int* unsupported) { return *unsupported = parsed[5] == 's', 0; }
FAKE nvjpegDecodeBatchedInitialize(void*, void*, int count, int, int format) {
  batch_count = count;
  batch_format = format;
  return 0;
}
FAKE nvjpegDecodeBatched(void*, void*, const unsigned char* const* data, const std::size_t*, Image* images, void*) {
  ++batches;
  for (int i = 0; i < batch_count; ++i)
    if (const int status = write(data[i], batch_format, images[i])) return status;
  return 0;
}
FAKE nvjpegDecode(void*, void*, const unsigned char* data, std::size_t, int format, Image* image, void*) {
  ++singles;
  return write(data, format, *image);
}
FAKE fake_batches() { return batches; }
FAKE fake_singles() { return singles; }
