// The part of doctest's vocabulary that our tests use, for machines without doctest: no package index offers the real
// one. Only what is here may be used in tests/cpp. The program takes --test-case="*part of a name*" and
// --source-file="*part of a path*"; none: all tests.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace doctest {

// Text to be found anywhere in an exception's message: CHECK_THROWS_WITH(f(), doctest::Contains("…")).
struct Contains {
  explicit Contains(std::string part) : text(std::move(part)) {}
  std::string text;
};

namespace detail {

struct Case {
  const char* name;
  const char* file;
  int line;
  void (*function)();
};

struct RequireFailed {};

// State of the running test. Tests run one after the other on the main thread.
struct State {
  std::vector<Case> cases;
  const Case* current = nullptr;
  unsigned failures = 0;    // of the current case
  unsigned assertions = 0;  // of all cases

  using Path = std::vector<std::string>;
  Path path;                          // subcases entered now, outermost first
  std::vector<bool> taken = {false};  // by depth: a subcase was entered in this run
  std::set<Path> finished;
  bool again = false;  // a subcase was passed over in this run

  std::vector<std::string> notes;  // INFO and CAPTURE of the open scopes
};

inline State& state() {
  static State instance;
  return instance;
}

struct Registrar {
  Registrar(const char* name, const char* file, int line, void (*function)()) {
    state().cases.push_back({name, file, line, function});
  }
};

// Enters one subcase per depth and run; the case is run again until every leaf has been entered once.
class Subcase {
 public:
  Subcase(const char* name, int line) {
    State& s = state();
    State::Path mine = s.path;
    mine.push_back(std::string(name) + "@" + std::to_string(line));
    if (s.finished.count(mine) != 0) return;
    if (s.taken[s.path.size()]) {
      s.again = true;
      return;
    }
    s.taken[s.path.size()] = true;
    s.path = std::move(mine);
    s.taken.resize(s.path.size() + 1);
    s.taken.back() = false;
    outer_again_ = s.again;
    s.again = false;
    entered_ = true;
  }
  Subcase(const Subcase&) = delete;
  Subcase& operator=(const Subcase&) = delete;
  ~Subcase() {
    if (!entered_) return;
    State& s = state();
    const bool thrown = std::uncaught_exceptions() > 0;  // the statements after it did not run
    if (!s.again || thrown) s.finished.insert(s.path);
    s.again = s.again || outer_again_ || thrown;
    s.taken.resize(s.path.size());
    s.path.pop_back();
  }
  explicit operator bool() const { return entered_; }

 private:
  bool entered_ = false;
  bool outer_again_ = false;
};

struct Note {
  explicit Note(std::string text) { state().notes.push_back(std::move(text)); }
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;
  ~Note() { state().notes.pop_back(); }
};

template <class T, class = void>
struct is_streamable : std::false_type {};
template <class T>
struct is_streamable<T, std::void_t<decltype(std::declval<std::ostream&>() << std::declval<const T&>())>>
    : std::true_type {};

template <class T>
std::string show(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    return "nullptr";
  } else if constexpr (is_streamable<T>::value) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "{?}";
  }
}

inline bool report(bool ok, const char* file, int line, const char* what, const std::string& detail = {}) {
  State& s = state();
  ++s.assertions;
  if (ok) return true;
  ++s.failures;
  std::printf("%s:%d: TEST CASE: %s\n", file, line, s.current->name);
  for (const std::string& step : s.path) std::printf("  %s\n", step.substr(0, step.rfind('@')).c_str());
  std::printf("  ERROR: %s\n", what);
  if (!detail.empty()) std::printf("  %s\n", detail.c_str());
  for (const std::string& note : s.notes) std::printf("  with %s\n", note.c_str());
  std::printf("\n");
  return false;
}

inline bool matches(const std::string& text, const std::string& wanted) { return text == wanted; }
inline bool matches(const std::string& text, const Contains& wanted) {
  return text.find(wanted.text) != std::string::npos;
}
inline std::string wanted_text(const std::string& wanted) { return "\"" + wanted + "\""; }
inline std::string wanted_text(const Contains& wanted) { return "something with \"" + wanted.text + "\""; }

template <class Wanted>
bool report_message(const std::exception& error, const Wanted& wanted, const char* file, int line, const char* what) {
  return report(matches(error.what(), wanted), file, line, what,
                "threw \"" + std::string(error.what()) + "\", wanted " + wanted_text(wanted));
}

inline void run_once(const Case& test) {
  try {
    test.function();
  } catch (const RequireFailed&) {
  } catch (const std::exception& error) {
    report(false, test.file, test.line, "exception left the test case", error.what());
  } catch (...) {
    report(false, test.file, test.line, "an exception outside std::exception left the test case");
  }
}

inline bool run_case(const Case& test) {
  State& s = state();
  s.current = &test;
  s.failures = 0;
  s.finished.clear();
  do {
    s.again = false;
    s.taken = {false};
    run_once(test);
  } while (s.again);
  return s.failures == 0;
}

// Whether the name contains the text of `--test-case="*text*"`, or of a bare argument; or the path of the file that of
// one of `--source-file=*text*,*text*`.
inline bool selects(const std::string& argument, const Case& test) {
  std::string text = argument.substr(argument.rfind("--", 0) == 0 ? argument.find('=') + 1 : 0);
  text.erase(std::remove(text.begin(), text.end(), '*'), text.end());
  if (argument.rfind("--source-file=", 0) != 0) return std::strstr(test.name, text.c_str()) != nullptr;
  std::istringstream files(text);
  for (std::string file; std::getline(files, file, ',');) {
    if (std::strstr(test.file, file.c_str()) != nullptr) return true;
  }
  return false;
}

inline int run_all(int count, char** arguments) {
  unsigned passed = 0, failed = 0, skipped = 0;
  for (const Case& test : state().cases) {
    bool chosen = count < 2;
    for (int i = 1; i < count; ++i) chosen = chosen || selects(arguments[i], test);
    if (!chosen) {
      ++skipped;
    } else {
      ++(run_case(test) ? passed : failed);
    }
  }
  std::printf("[doctest] test cases: %u | %u passed | %u failed | %u skipped\n", passed + failed, passed, failed,
              skipped);
  std::printf("[doctest] assertions: %u\n", state().assertions);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace detail
}  // namespace doctest

#define DOCTEST_CAT_(a, b) a##b
#define DOCTEST_CAT(a, b) DOCTEST_CAT_(a, b)

#define DOCTEST_CASE(id, name)                                                                          \
  static void id();                                                                                     \
  static const ::doctest::detail::Registrar DOCTEST_CAT(id, _registrar)(name, __FILE__, __LINE__, &id); \
  static void id()
#define TEST_CASE(name) DOCTEST_CASE(DOCTEST_CAT(doctest_case_, __COUNTER__), name)
#define SUBCASE(name) if (const ::doctest::detail::Subcase DOCTEST_CAT(doctest_subcase_, __COUNTER__){name, __LINE__})

#define INFO(text)                                                               \
  const ::doctest::detail::Note DOCTEST_CAT(doctest_note_, __COUNTER__) {        \
    (static_cast<const std::ostringstream&>(std::ostringstream() << text)).str() \
  }
#define CAPTURE(value) INFO(#value " = " << ::doctest::detail::show(value))

// Each assertion is a function call, so that it is one expression and evaluates its arguments once.
#define DOCTEST_TRUTH(wanted, what, ...) \
  ::doctest::detail::report(static_cast<bool>(__VA_ARGS__) == (wanted), __FILE__, __LINE__, what "(" #__VA_ARGS__ ")")
#define DOCTEST_COMPARE(op, what, a, b)                                                         \
  [&](const auto& doctest_a, const auto& doctest_b) {                                           \
    return ::doctest::detail::report(                                                           \
        doctest_a op doctest_b, __FILE__, __LINE__, what "(" #a ", " #b ")",                    \
        ::doctest::detail::show(doctest_a) + " " #op " " + ::doctest::detail::show(doctest_b)); \
  }(a, b)
#define DOCTEST_REQUIRE(...)                                      \
  do {                                                            \
    if (!(__VA_ARGS__)) throw ::doctest::detail::RequireFailed(); \
  } while (false)

#define CHECK(...) DOCTEST_TRUTH(true, "CHECK", __VA_ARGS__)
#define CHECK_FALSE(...) DOCTEST_TRUTH(false, "CHECK_FALSE", __VA_ARGS__)
#define CHECK_EQ(a, b) DOCTEST_COMPARE(==, "CHECK_EQ", a, b)
#define CHECK_NE(a, b) DOCTEST_COMPARE(!=, "CHECK_NE", a, b)
#define CHECK_LT(a, b) DOCTEST_COMPARE(<, "CHECK_LT", a, b)
#define CHECK_LE(a, b) DOCTEST_COMPARE(<=, "CHECK_LE", a, b)
#define CHECK_GT(a, b) DOCTEST_COMPARE(>, "CHECK_GT", a, b)
#define CHECK_GE(a, b) DOCTEST_COMPARE(>=, "CHECK_GE", a, b)
#define REQUIRE(...) DOCTEST_REQUIRE(DOCTEST_TRUTH(true, "REQUIRE", __VA_ARGS__))
#define REQUIRE_FALSE(...) DOCTEST_REQUIRE(DOCTEST_TRUTH(false, "REQUIRE_FALSE", __VA_ARGS__))
#define REQUIRE_EQ(a, b) DOCTEST_REQUIRE(DOCTEST_COMPARE(==, "REQUIRE_EQ", a, b))
#define REQUIRE_NE(a, b) DOCTEST_REQUIRE(DOCTEST_COMPARE(!=, "REQUIRE_NE", a, b))
#define REQUIRE_LT(a, b) DOCTEST_REQUIRE(DOCTEST_COMPARE(<, "REQUIRE_LT", a, b))
#define REQUIRE_LE(a, b) DOCTEST_REQUIRE(DOCTEST_COMPARE(<=, "REQUIRE_LE", a, b))
#define REQUIRE_GT(a, b) DOCTEST_REQUIRE(DOCTEST_COMPARE(>, "REQUIRE_GT", a, b))
#define REQUIRE_GE(a, b) DOCTEST_REQUIRE(DOCTEST_COMPARE(>=, "REQUIRE_GE", a, b))

#define DOCTEST_FAIL(text) \
  ::doctest::detail::report(false, __FILE__, __LINE__, "FAIL", (std::ostringstream() << text).str())
#define FAIL_CHECK(text) static_cast<void>(DOCTEST_FAIL(text))
#define FAIL(text) DOCTEST_REQUIRE(DOCTEST_FAIL(text))

// `handlers` are catch clauses that report; falling through means that nothing was thrown.
#define DOCTEST_THROWS(expression, what, handlers)                                                     \
  do {                                                                                                 \
    try {                                                                                              \
      static_cast<void>(expression);                                                                   \
      ::doctest::detail::report(false, __FILE__, __LINE__, what "(" #expression ")", "threw nothing"); \
    }                                                                                                  \
    handlers                                                                                           \
  } while (false)
#define DOCTEST_OTHERWISE(what)                                                       \
  catch (...) {                                                                       \
    ::doctest::detail::report(false, __FILE__, __LINE__, what, "threw another type"); \
  }
#define DOCTEST_CATCH(type, what)                              \
  catch (const type&) {                                        \
    ::doctest::detail::report(true, __FILE__, __LINE__, what); \
  }
#define DOCTEST_CATCH_TEXT(type, text, what)                                  \
  catch (const type& error) {                                                 \
    ::doctest::detail::report_message(error, text, __FILE__, __LINE__, what); \
  }

#define CHECK_THROWS(expression) \
  DOCTEST_THROWS(expression, "CHECK_THROWS", catch (...) { ::doctest::detail::report(true, __FILE__, __LINE__, ""); })
#define CHECK_THROWS_AS(expression, type)               \
  DOCTEST_THROWS(expression, "CHECK_THROWS_AS",         \
                 DOCTEST_CATCH(type, "CHECK_THROWS_AS") \
                     DOCTEST_OTHERWISE("CHECK_THROWS_AS(" #expression ", " #type ")"))
#define CHECK_THROWS_WITH(expression, text)                                                     \
  DOCTEST_THROWS(expression, "CHECK_THROWS_WITH",                                               \
                 DOCTEST_CATCH_TEXT(std::exception, text, "CHECK_THROWS_WITH(" #expression ")") \
                     DOCTEST_OTHERWISE("CHECK_THROWS_WITH(" #expression ")"))
#define CHECK_THROWS_WITH_AS(expression, text, type)                                                \
  DOCTEST_THROWS(expression, "CHECK_THROWS_WITH_AS",                                                \
                 DOCTEST_CATCH_TEXT(type, text, "CHECK_THROWS_WITH_AS(" #expression ", " #type ")") \
                     DOCTEST_OTHERWISE("CHECK_THROWS_WITH_AS(" #expression ", " #type ")"))
#define CHECK_NOTHROW(expression)                                                                           \
  do {                                                                                                      \
    try {                                                                                                   \
      static_cast<void>(expression);                                                                        \
      ::doctest::detail::report(true, __FILE__, __LINE__, "");                                              \
    } catch (const std::exception& error) {                                                                 \
      ::doctest::detail::report(false, __FILE__, __LINE__, "CHECK_NOTHROW(" #expression ")", error.what()); \
    }                                                                                                       \
  } while (false)

#ifdef DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
int main(int count, char** arguments) { return ::doctest::detail::run_all(count, arguments); }
#endif
