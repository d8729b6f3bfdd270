// A table of functions for Python code. With BEFORE, the library lacks the last function, as one that was built earlier.
#include <hami/function_table.hpp>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)

struct Functions {
  std::int64_t (*add)(std::int64_t, std::int64_t);
#ifndef BEFORE
  double (*half)(double);
#endif
};

constexpr Functions kFunctions = {
    [](std::int64_t a, std::int64_t b) { return a + b; },
#ifndef BEFORE
    [](double number) { return number / 2; },
#endif
};

HAMI_REGISTER(hami::FunctionTable<kFunctions>, TEXT(PREFIX) "Functions", "", "Returns functions.");
HAMI_PLUGIN("function-table", "0.1")
