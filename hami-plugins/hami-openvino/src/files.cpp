// Finds the weights of an IR by its name, and those of an ONNX model by as much of its protobuf as leads to their names.
#include "files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <hami/backend.hpp>
#include <set>
#include <string_view>

namespace hami_openvino {
namespace {

namespace fs = std::filesystem;

// The messages on the way from an ONNX model to where its tensors say that they lie in a file, and its field numbers.
enum class Message { kModel, kFunction, kGraph, kSparse, kNode, kAttribute, kTensor, kPlace };
struct Field {
  Message of;
  std::uint64_t number;
  Message holds;
};
constexpr std::array kFields{
    Field{Message::kModel, 7, Message::kGraph},      Field{Message::kModel, 25, Message::kFunction},
    Field{Message::kFunction, 7, Message::kNode},    Field{Message::kGraph, 1, Message::kNode},
    Field{Message::kGraph, 5, Message::kTensor},     Field{Message::kGraph, 15, Message::kSparse},
    Field{Message::kSparse, 1, Message::kTensor},    Field{Message::kSparse, 2, Message::kTensor},
    Field{Message::kNode, 5, Message::kAttribute},   Field{Message::kAttribute, 5, Message::kTensor},
    Field{Message::kAttribute, 6, Message::kGraph},  Field{Message::kAttribute, 10, Message::kTensor},
    Field{Message::kAttribute, 11, Message::kGraph}, Field{Message::kTensor, 13, Message::kPlace},
};
constexpr int kDeepest = 100;  // messages in messages, as protobuf has it

class Onnx {
 public:
  // Of a file that is no ONNX model, or a damaged one, it is what was found so far: OpenVINO says what is wrong with it.
  static std::set<std::string> locations(std::string_view data) {
    Onnx onnx;
    onnx.walk(data, Message::kModel, 0);
    return onnx.found_;
  }

 private:
  bool walk(std::string_view data, Message message, int depth) {
    if (depth > kDeepest) return false;
    std::string_view key;
    std::string_view value;
    while (!data.empty()) {
      std::uint64_t tag = 0;
      std::uint64_t length = 0;
      if (!number(data, tag)) return false;
      switch (tag & 7u) {
        case 0:
          if (!number(data, length)) return false;
          continue;
        case 1:
        case 5:
          length = (tag & 7u) == 1 ? 8 : 4;
          break;
        case 2:
          if (!number(data, length)) return false;
          break;
        default:
          return false;
      }
      if (length > data.size()) return false;
      const std::string_view content = data.substr(0, length);
      data.remove_prefix(length);
      if ((tag & 7u) != 2) continue;
      if (message == Message::kPlace) (tag >> 3u == 1 ? key : value) = content;
      for (const Field& field : kFields)
        if (field.of == message && field.number == tag >> 3u && !walk(content, field.holds, depth + 1)) return false;
    }
    if (key == "location") found_.emplace(value);
    return true;
  }

  static bool number(std::string_view& data, std::uint64_t& number) {
    for (unsigned shift = 0; shift < 64 && !data.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(data.front());
      data.remove_prefix(1);
      number |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
      if (byte < 0x80u) return true;
    }
    return false;
  }

  std::set<std::string> found_;
};

// Of a large model most is weights that it passes over; so these are not read.
std::set<std::string> locations_in(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const off_t size = lseek(file, 0, SEEK_END);
  void* data = size > 0 ? mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (data == MAP_FAILED) return {};
  std::set<std::string> found = Onnx::locations({static_cast<const char*>(data), static_cast<std::size_t>(size)});
  munmap(data, static_cast<std::size_t>(size));
  return found;
}

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

Files beside(const fs::path& model) {
  if (model.extension() == ".xml") return {model, {fs::path(model).replace_extension("bin")}};
  Files files{model, {}};
  for (const std::string& location : locations_in(model)) files.weights.push_back(model.parent_path() / location);
  return files;
}

}  // namespace

std::string Files::stamp() const {
  std::vector<fs::path> all = weights;
  all.insert(all.begin(), model);
  std::string text;
  for (const fs::path& file : all) {
    std::error_code absent;
    const auto size = fs::file_size(file, absent);
    if (absent) continue;
    const auto time = static_cast<std::int64_t>(fs::last_write_time(file, absent).time_since_epoch().count());
    text += '\n' + fs::canonical(file, absent).string() + '\n' + std::to_string(size) + '\n' + std::to_string(time);
  }
  return text;
}

std::string Files::show_missing() const {
  std::string text;
  for (const fs::path& file : weights)
    if (!is_file(file)) text += "; there is no \"" + file.string() + "\", where its weights belong";
  return text;
}

Files files_of(const std::string& model) {
  std::error_code ignored;
  const fs::path path = fs::absolute(model, ignored);
  const auto refuse = [](const std::string& text) {
    throw hami::Error(HAMI_FAILED_PRECONDITION, "OpenvinoTensor: " + text);
  };
  if (fs::is_directory(path, ignored))
    refuse("\"model\" is the path of an ONNX file or of an IR's .xml, \"" + model + "\" is a folder");
  if (!is_file(path)) refuse("there is no model file \"" + model + "\" (looked for " + path.string() + ")");
  // Weights lie beside the path as given, as in the cache of Hugging Face, where all are links, or beside its target.
  // OpenVINO may refuse links that an ONNX model's weights are: so of these the target's come first.
  const Files target = beside(fs::canonical(path));
  const Files given = beside(path);
  if (path.extension() != ".xml" && target.show_missing().empty()) return target;
  return !given.weights.empty() && given.show_missing().empty() ? given : target;
}

}  // namespace hami_openvino
