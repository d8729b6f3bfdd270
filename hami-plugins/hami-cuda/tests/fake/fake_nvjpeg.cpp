// nvJPEG without a GPU. A file is FF D8, then one byte each: width, height, EXIF orientation, and how it decodes: 'b'
// in a batch, 's' alone only, 'x' is broken, 'u' has an unknown header. Pixel x, y of channel c is x + 16 y + 64 c, in
// the order RGB.
//
// The work of a call is on its stream, and reads the state and the file when it runs. The engines, which decode batches,
// also write when they are called. FAKE_NVJPEG_VERSION, such as 12.0, is the version of the library.
//
// An encoded file is FF D8, then one byte each: width, height, number of channels, quality and subsampling, and the channels in
// the order RGB. An image of 13 columns cannot be encoded, and one of 17 columns needs more memory than there is. A file whose
// encoder was at work when its call began is "overlap". FAKE_NVJPEG_REFUSED is a quality or subsampling that is refused.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default"))) int

namespace {
constexpr int kBadJpeg = 3;
constexpr int kAllocatorFailure = 5;
constexpr int kInvalidParameter = 2;
constexpr int kBgr = 4;
int batches = 0;
int singles = 0;
int objects = 0;  // that exist
int last_flags = 0;
std::size_t last_header = 0;               // bytes from which it was read
const unsigned char* last_file = nullptr;  // of a batch

struct Image {
  unsigned char* plane[4];
  std::size_t row_bytes[4];
};

struct Parser {
  const unsigned char* parsed = nullptr;
};

struct Job {
  const unsigned char* file;
  int format;
  Image image;
};

struct State {
  std::vector<Job> jobs;  // of the last call
  int count = 0;
  int format = 0;
};

void write(const Job& job) {
  const unsigned char* const file = job.file;
  const int channels = job.format == 2 ? 1 : 3;
  for (int channel = 0; channel < channels; ++channel)
    for (int y = 0; y < file[3]; ++y)
      for (int x = 0; x < file[2]; ++x)
        job.image.plane[job.format == kBgr ? 2 - channel : channel]
                       [static_cast<std::size_t>(y) * job.image.row_bytes[0] + static_cast<std::size_t>(x)] =
            static_cast<unsigned char>(x + 16 * y + 64 * channel);
}

void submit_late(void* stream, void (*work)(void*), void* argument) {
  using Submit = void (*)(void* stream, void (*work)(void*), void* argument);
  static const auto submit =
      reinterpret_cast<Submit>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "fake_submit"));
  submit(stream, work, argument);
}

// Submits the job of a state by its number: what a later call writes to the state, the work reads.
void submit(State* state, std::size_t number, void* stream) {
  struct Late {
    State* state;
    std::size_t number;
  };
  submit_late(stream, [](void* argument) {
    const std::unique_ptr<Late> late(static_cast<Late*>(argument));
    if (late->number < late->state->jobs.size()) write(late->state->jobs[late->number]);
  }, new Late{state, number});
}

struct EncoderParams {
  int quality = 0;
  int subsampling = 0;
};

struct Encoder {
  Image image;  // of the last call
  int format;
  int width;
  int height;
  EncoderParams params;
  bool overlaps;
  std::string file;
  bool is_at_work = false;
};

// FAKE_NVJPEG_OBJECTS is the number of objects for which there is memory.
template <class T>
int create(void** made) {
  const char* const most = std::getenv("FAKE_NVJPEG_OBJECTS");
  if (most && objects >= std::atoi(most)) return kAllocatorFailure;
  return *made = new T{}, ++objects, 0;
}

template <class T>
int destroy(void* made) {
  delete static_cast<T*>(made);
  return --objects, 0;
}

int set(int& parameter, int number) {
  const char* const refused = std::getenv("FAKE_NVJPEG_REFUSED");
  if (refused && number == std::atoi(refused)) return kInvalidParameter;
  return parameter = number, 0;
}

// The color of a pixel, where `format` is an nvjpegInputFormat_t, or 2 for gray planes.
unsigned char color_at(const Encoder& of, int x, int y, int channel) {
  constexpr int kFirstInterleaved = 5;
  const bool is_bgr = of.format == kBgr || of.format == kBgr + 2;
  if (is_bgr) channel = 2 - channel;
  if (of.format >= kFirstInterleaved)
    return of.image.plane[0][static_cast<std::size_t>(y) * of.image.row_bytes[0] + 3 * x + channel];
  return of.image.plane[channel][static_cast<std::size_t>(y) * of.image.row_bytes[channel] + x];
}

int start_encoding(Encoder* state, const EncoderParams* params, const Image* image, int format, int width, int height,
                   void* stream) {
  constexpr int kRefusedWidth = 13;
  constexpr int kLargeWidth = 17;
  if (width == kRefusedWidth) return kBadJpeg;
  if (width == kLargeWidth) return kAllocatorFailure;
  *state = {*image, format, width, height, *params, state->is_at_work, {}, true};
  submit_late(stream, [](void* argument) {
    Encoder& of = *static_cast<Encoder*>(argument);
    of.is_at_work = false;
    if (of.overlaps) return void(of.file = "overlap");
    const int channels = of.format == 2 ? 1 : 3;
    of.file = "\xff\xd8";
    for (const int number : {of.width, of.height, channels, of.params.quality, of.params.subsampling})
      of.file += static_cast<char>(number);
    for (int channel = 0; channel < channels; ++channel)
      for (int y = 0; y < of.height; ++y)
        for (int x = 0; x < of.width; ++x) of.file += static_cast<char>(color_at(of, x, y, channel));
  }, state);
  return 0;
}
}  // namespace

FAKE nvjpegEncoderStateCreate(void*, void** state, void*) { return create<Encoder>(state); }
FAKE nvjpegEncoderStateDestroy(void* state) { return destroy<Encoder>(state); }
FAKE nvjpegEncoderParamsCreate(void*, void** params, void*) { return create<EncoderParams>(params); }
FAKE nvjpegEncoderParamsDestroy(void* params) { return destroy<EncoderParams>(params); }
FAKE nvjpegEncoderParamsSetQuality(void* params, int quality, void*) {
  return set(static_cast<EncoderParams*>(params)->quality, quality);
}
FAKE nvjpegEncoderParamsSetSamplingFactors(void* params, int subsampling, void*) {
  return set(static_cast<EncoderParams*>(params)->subsampling, subsampling);
}
FAKE nvjpegEncodeImage(void*, void* state, void* params, const Image* image, int format, int width, int height,
                       void* stream) {
  return start_encoding(static_cast<Encoder*>(state), static_cast<EncoderParams*>(params), image, format, width, height,
                        stream);
}
FAKE nvjpegEncodeYUV(void*, void* state, void* params, const Image* image, int, int width, int height, void* stream) {
  return start_encoding(static_cast<Encoder*>(state), static_cast<EncoderParams*>(params), image, 2, width, height,
                        stream);
}
FAKE nvjpegEncodeRetrieveBitstream(void*, void* state, unsigned char* data, std::size_t* size, void*) {
  const std::string& file = static_cast<Encoder*>(state)->file;
  *size = file.size();
  if (data) std::memcpy(data, file.data(), file.size());
  return 0;
}
FAKE nvjpegGetProperty(int which, int* value) {
  const char* const text = std::getenv("FAKE_NVJPEG_VERSION");
  char* rest = nullptr;
  const long major = std::strtol(text ? text : "13.0", &rest, 10);
  return *value = static_cast<int>(which == 0 ? major : which == 1 ? std::strtol(rest + 1, nullptr, 10) : 0), 0;
}
FAKE nvjpegCreateEx(int, void*, void*, unsigned flags, void** handle) {
  last_flags = static_cast<int>(flags);
  return handle ? create<int>(handle) : 0;
}
FAKE nvjpegDestroy(void* handle) { return destroy<int>(handle); }
FAKE nvjpegJpegStateCreate(void*, void** state) { return create<State>(state); }
FAKE nvjpegJpegStateDestroy(void* state) { return destroy<State>(state); }
FAKE nvjpegJpegStreamCreate(void*, void** parser) { return create<Parser>(parser); }
FAKE nvjpegJpegStreamDestroy(void* parser) { return destroy<Parser>(parser); }
FAKE nvjpegJpegStreamParseHeader(void*, const unsigned char* data, std::size_t size, void* parser) {
  static_cast<Parser*>(parser)->parsed = data;
  last_header = size;
  return size < 6 || data[5] == 'u' ? kBadJpeg : 0;
}
FAKE nvjpegJpegStreamGetFrameDimensions(void* parser, unsigned* width, unsigned* height) {
  *width = static_cast<Parser*>(parser)->parsed[2];
  *height = static_cast<Parser*>(parser)->parsed[3];
  return 0;
}
FAKE nvjpegJpegStreamGetExifOrientation(void* parser, int* orientation) {
  return *orientation = static_cast<Parser*>(parser)->parsed[4], 0;
}
FAKE nvjpegDecodeBatchedSupported(void*, void* parser, int* unsupported) {
  return *unsupported = static_cast<Parser*>(parser)->parsed[5] == 's', 0;
}
FAKE nvjpegDecodeBatchedInitialize(void*, void* state, int count, int, int format) {
  static_cast<State*>(state)->count = count;
  static_cast<State*>(state)->format = format;
  return 0;
}
FAKE nvjpegDecodeBatched(void*, void* given, const unsigned char* const* data, const std::size_t*, Image* images,
                         void* stream) {
  ++batches;
  last_file = data[0];
  State* const state = static_cast<State*>(given);
  state->jobs.clear();
  for (int i = 0; i < state->count; ++i) {
    state->jobs.push_back({data[i], state->format, images[i]});
    if (data[i][5] != 'x') write(state->jobs.back());
    if (data[i][5] == 'x') return kBadJpeg;
    submit(state, state->jobs.size() - 1, stream);
  }
  return 0;
}
FAKE nvjpegDecode(void*, void* given, const unsigned char* data, std::size_t, int format, Image* image, void* stream) {
  ++singles;
  if (data[5] == 'x') return kBadJpeg;
  State* const state = static_cast<State*>(given);
  state->jobs = {{data, format, *image}};
  submit(state, 0, stream);
  return 0;
}
FAKE fake_batches() { return batches; }
FAKE fake_singles() { return singles; }
FAKE fake_objects() { return objects; }
FAKE fake_flags() { return last_flags; }
FAKE fake_header_bytes() { return static_cast<int>(last_header); }
extern "C" __attribute__((visibility("default"))) const void* fake_file() { return last_file; }
