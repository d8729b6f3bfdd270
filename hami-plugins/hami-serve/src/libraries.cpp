// The parsers that this library is compiled with: the backend DoorLibraries names their versions, for `hami doctor`.
#include <llhttp.h>
#include <simdjson.h>
#include <zlib.h>

#include <hami/backend.hpp>
#include <string>
#ifdef HAMI_SERVE_NGHTTP2
#include <nghttp2/nghttp2.h>
#endif

namespace hami_serve {
namespace {

std::string libraries() {
  std::string text = "llhttp " + std::to_string(LLHTTP_VERSION_MAJOR) + "." + std::to_string(LLHTTP_VERSION_MINOR) +
                     "." + std::to_string(LLHTTP_VERSION_PATCH);
#ifdef HAMI_SERVE_NGHTTP2
  text += std::string(", nghttp2 ") + nghttp2_version(0)->version_str;
#endif
  return text + ", simdjson " SIMDJSON_VERSION " (" + simdjson::get_active_implementation()->name() +
         "), zlib " ZLIB_VERSION;
}

class DoorLibraries final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_NON_BLOCKING;

 private:
  void forward_(hami::Batch batch) override {
    for (const hami::Dict& item : batch) item["result"] = hami::Value(std::string_view(libraries()));
  }
};

}  // namespace
}  // namespace hami_serve

HAMI_REGISTER(hami_serve::DoorLibraries, "DoorLibraries", "",
              "Return the names and versions of the parsers of the server.");
HAMI_PLUGIN("hami-serve", HAMI_SERVE_VERSION)
