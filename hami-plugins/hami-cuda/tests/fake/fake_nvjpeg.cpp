// nvJPEG without a GPU. A file is FF D8, then one byte each: width, height, EXIF orientation, and how it decodes: 'b'
// in a batch, 's' alone only, 'x' is broken, 'u' has an unknown header. Pixel x, y of channel c is x + 16 y + 64 c, in
// the order RGB.
//
// The work of a call is on its stream, and reads the state and the file when it runs. The engines, which decode batches,
// also write when they are called. FAKE_NVJPEG_VERSION, such as 12.0, is the version of the library.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default"))) int

namespace {
constexpr int kBadJpeg = 3;
constexpr int kBgr = 4;
int batches = 0;
int singles = 0;
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

// Submits the job of a state by its number: what a later call writes to the state, the work reads.
void submit(State* state, std::size_t number, void* stream) {
  struct Late {
    State* state;
    std::size_t number;
  };
  using Submit = void (*)(void* stream, void (*work)(void*), void* argument);
  static const auto submit_late =
      reinterpret_cast<Submit>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "fake_submit"));
  submit_late(stream, [](void* argument) {
    const std::unique_ptr<Late> late(static_cast<Late*>(argument));
    if (late->number < late->state->jobs.size()) write(late->state->jobs[late->number]);
  }, new Late{state, number});
}
}  // namespace

FAKE nvjpegGetProperty(int which, int* value) {
  const char* const text = std::getenv("FAKE_NVJPEG_VERSION");
  char* rest = nullptr;
  const long major = std::strtol(text ? text : "13.0", &rest, 10);
  return *value = static_cast<int>(which == 0 ? major : which == 1 ? std::strtol(rest + 1, nullptr, 10) : 0), 0;
}
FAKE nvjpegCreateEx(int, void*, void*, unsigned flags, void**) { return last_flags = static_cast<int>(flags), 0; }
FAKE nvjpegJpegStateCreate(void*, void** state) { return *state = new State, 0; }
FAKE nvjpegJpegStreamCreate(void*, void** parser) { return *parser = new Parser, 0; }
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
FAKE fake_flags() { return last_flags; }
FAKE fake_header_bytes() { return static_cast<int>(last_header); }
extern "C" __attribute__((visibility("default"))) const void* fake_file() { return last_file; }
