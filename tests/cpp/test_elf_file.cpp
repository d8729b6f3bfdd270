// The check of a library's file before it is loaded.
#include "plugin/library.hpp"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "built.hpp"
#include "value/error.hpp"

#include <doctest/doctest.h>

using namespace hami;
using hami::testing::built;

namespace {

// A file that exists as long as the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content = "") {
    std::string name = (std::filesystem::temp_directory_path() / "hami-elf-XXXXXX").string();
    const int descriptor = ::mkstemp(name.data());
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    path = name;
    write(content);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::remove(path.c_str()); }

  void write(const std::string& content) const { std::ofstream(path, std::ios::binary) << content; }

  std::string path;
};

std::string library() {
  std::ifstream file(built("addone.so"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string rejection(const std::string& path) {
  try {
    check_elf_file(path);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kPlugin);
    return error.message();
  }
  return "";
}

// A copy of the library with another header.
template <class Change>
std::string rejection_with(Change change) {
  std::string content = library();
  Elf64_Ehdr header;
  std::memcpy(&header, content.data(), sizeof header);
  change(header);
  std::memcpy(content.data(), &header, sizeof header);
  const TemporaryFile file(content);
  const std::string why = rejection(file.path);
  const std::string prefix = "\"" + file.path + "\" ";
  return why.rfind(prefix, 0) == 0 ? why.substr(prefix.size()) : why;
}

#if defined(__x86_64__)
const char* const kThis = "x86_64, 64 bits";
constexpr unsigned kOther = EM_AARCH64;
const char* const kOtherName = "aarch64";
#else
const char* const kThis = "aarch64, 64 bits";
constexpr unsigned kOther = EM_X86_64;
const char* const kOtherName = "x86_64";
#endif

}  // namespace

TEST_CASE("a whole library passes") { CHECK(rejection(built("addone.so")) == ""); }

TEST_CASE("a library that is cut at any length is rejected") {
  const std::string content = library();
  const TemporaryFile file;
  for (std::size_t size = 0; size < content.size(); size = size < 256 ? size + 1 : size + content.size() / 97) {
    file.write(content.substr(0, size));
    const std::string why = rejection(file.path);
    const std::string expected = "\"" + file.path + "\" is truncated: it has " + std::to_string(size) +
                                 " bytes, and its headers describe at least ";
    CHECK(why.substr(0, expected.size()) == expected);
  }
  file.write(content.substr(0, content.size() - 1));
  CHECK(rejection(file.path) == "\"" + file.path + "\" is truncated: it has " + std::to_string(content.size() - 1) +
                                    " bytes, and its headers describe at least " + std::to_string(content.size()) +
                                    "; install it again");
}

TEST_CASE("a library without section headers is rejected if a segment is cut") {
  std::string content = library();
  Elf64_Ehdr header;
  std::memcpy(&header, content.data(), sizeof header);
  header.e_shoff = 0;
  header.e_shnum = 0;
  std::memcpy(content.data(), &header, sizeof header);
  const TemporaryFile file(content);
  CHECK(rejection(file.path) == "");
  file.write(content.substr(0, content.size() / 8));
  CHECK(rejection(file.path).find(" is truncated: ") != std::string::npos);
}

TEST_CASE("a library of another machine is rejected with both names") {
  const std::string rest = std::string("; this process is ") + kThis + ": install the plugin's wheel for this machine";
  CHECK(rejection_with([](Elf64_Ehdr& header) { header.e_machine = kOther; }) ==
        std::string("is built for another machine: ") + kOtherName + ", 64 bits" + rest);
  CHECK(rejection_with([](Elf64_Ehdr& header) {
    header.e_machine = EM_386;
    header.e_ident[EI_CLASS] = ELFCLASS32;
  }) == "is built for another machine: i386, 32 bits" + rest);
  CHECK(rejection_with([](Elf64_Ehdr& header) { header.e_machine = 12345; }) ==
        "is built for another machine: machine 12345, 64 bits" + rest);
}

TEST_CASE("a file that is not a shared library is rejected") {
  CHECK(rejection_with([](Elf64_Ehdr& header) { header.e_type = ET_REL; }) ==
        "is an ELF file, but not a shared library");
  const TemporaryFile text("not a library");
  CHECK(rejection(text.path) == "\"" + text.path + "\" is not a shared library: it does not start as an ELF file");
  CHECK(rejection("/") == "\"/\" is not a regular file");
  CHECK(rejection("/dev/zero") == "\"/dev/zero\" is not a regular file");
  const TemporaryFile place;
  std::remove(place.path.c_str());
  REQUIRE(::mkfifo(place.path.c_str(), 0600) == 0);
  CHECK(rejection(place.path) == "\"" + place.path + "\" is not a regular file");
}

TEST_CASE("headers that refer beyond any file are rejected") {
  for (const std::uint64_t far : {UINT64_MAX, UINT64_MAX / 2, std::uint64_t{1} << 40}) {
    CHECK(rejection_with([&](Elf64_Ehdr& header) { header.e_phoff = far; }).find("is truncated") == 0);
    CHECK(rejection_with([&](Elf64_Ehdr& header) { header.e_shoff = far; }).find("is truncated") == 0);
  }
}

TEST_CASE("the loader reports why a file cannot be opened") {
  CHECK(rejection("/nowhere/libacme.so") == "");
  try {
    load_library("/nowhere/libacme.so", "");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.message() == "/nowhere/libacme.so: cannot open shared object file: No such file or directory");
  }
}
