// Uses the parts of hami/embed.hpp that the example of the guide does not use: nodes, errors, timeouts, shared values, closing.
// Prints a line for each.
#include <hami/embed.hpp>

#include <cstdio>
#include <functional>
#include <string>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// ThreadSanitizer does not see the reference counts of exceptions, because the C++ library is not compiled with it.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif
#endif

namespace {

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

// Prints the code and the first line of the error that `call` throws.
void print_error(const std::function<void()>& call) {
  try {
    call();
    print("no error");
  } catch (const hami::Error& error) {
    const std::string text = error.what();
    print(std::to_string(error.code()) + " " + text.substr(0, text.find('\n')));
  }
}

hami::Value table(const hami::Keys& keys) { return hami::to_value(keys); }

}  // namespace

int main(int, char** argv) {
  for (const std::string& name : hami::load_plugin(argv[1])) print(name);

  const hami::Pipe nodes({{"first", table({{"backend", "AddOne"}, {"step", 10}, {"next", "second"}})},
                          {"second", table({{"backend", "AddOne"}, {"max", 4}})},
                          {"global", table({{"step", 1}})}});
  print(std::to_string(nodes({{"data", 31}}).at("result").as_int()));
  const hami::Keys kept = nodes({{"data", 1}, {"id", "r1"}, {"list", hami::Value::list({1, "two"})}});
  print(std::string(kept.at("id").as_text()) + " " + std::to_string(kept.at("list").as_list().size()));

  print_error([&] { nodes({{"data", "text"}}); });
  print_error([&] { nodes({{"id", 1}}); });
  print_error([&] { (void)nodes.submit({{"data", "text"}}).get(); });
  try {
    nodes({{"data", 1}}, 0);
  } catch (const hami::Error& error) {
    print(error.code() == HAMI_DEADLINE_EXCEEDED ? "timed out" : error.what());
  }
  print_error([] { hami::Pipe(hami::Keys{{"node", 7}}); });
  print_error([] { hami::Pipe(hami::Keys{{"node", table({{"backend", "AddOne(stp=2)"}})}}); });
  print_error([] { hami::Pipe("S[AddOne"); });

  print(std::to_string(nodes.close().size()) + " backends abandoned");
  print_error([&] { nodes({{"data", 1}}); });
}
