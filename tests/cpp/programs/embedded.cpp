// Uses what the example of the document does not: nodes, errors, timeouts, values that are shared, closing. One line each.
#include <hami/embed.hpp>

#include <cstdio>
#include <functional>
#include <string>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// The compiler's library counts the references to an exception where the sanitizer does not see it.
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif
#endif

namespace {

void say(const std::string& line) { std::printf("%s\n", line.c_str()); }

// The code and the first line of what it throws.
void fails(const std::function<void()>& call) {
  try {
    call();
    say("no error");
  } catch (const hami::Error& error) {
    const std::string text = error.what();
    say(std::to_string(error.code()) + " " + text.substr(0, text.find('\n')));
  }
}

hami::Value table(const hami::Keys& keys) { return hami::to_value(keys); }

}  // namespace

int main(int, char** argv) {
  for (const std::string& name : hami::load_plugin(argv[1])) say(name);

  const hami::Pipe nodes({{"first", table({{"backend", "AddOne"}, {"step", 10}, {"next", "second"}})},
                          {"second", table({{"backend", "AddOne"}, {"max", 4}})},
                          {"global", table({{"step", 1}})}});
  say(std::to_string(nodes({{"data", 31}}).at("result").as_int()));
  const hami::Keys kept = nodes({{"data", 1}, {"id", "r1"}, {"list", hami::Value::list({1, "two"})}});
  say(std::string(kept.at("id").as_text()) + " " + std::to_string(kept.at("list").as_list().size()));

  fails([&] { nodes({{"data", "text"}}); });
  fails([&] { nodes({{"id", 1}}); });
  fails([&] { (void)nodes.submit({{"data", "text"}}).get(); });
  try {
    nodes({{"data", 1}}, 0);
  } catch (const hami::Error& error) {
    say(error.code() == HAMI_DEADLINE_EXCEEDED ? "too late" : error.what());
  }
  fails([] { hami::Pipe(hami::Keys{{"node", 7}}); });
  fails([] { hami::Pipe(hami::Keys{{"node", table({{"backend", "AddOne(stp=2)"}})}}); });
  fails([] { hami::Pipe("S[AddOne"); });

  say(std::to_string(nodes.close().size()) + " did not come back");
  fails([&] { nodes({{"data", 1}}); });
}
