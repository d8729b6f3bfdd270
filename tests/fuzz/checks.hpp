// Properties that hold for every input. The fuzz targets try inputs; tests/cpp/test_fuzz_corpus.cpp replays the corpus.
#pragma once

#include <stdexcept>
#include <string_view>

namespace hami::fuzz {

// A property does not hold, which is a bug of the core.
struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};

// The text is either an expression that prints and parses back to the same tree, or an error with a position within it.
void check_expression(std::string_view text);

// Planning the text, a configuration in the form below, twice gives the same result, and every problem has a message.
//   entrypoint = Forward[node.a]          before any section: entrypoint, dag_entrypoint, or a provider
//   [a]                                   a node; [global] is the section of that name
//   backend = S[Identity,Identity]        a str; integers, floats, true and false get their own types
//   next = |b|c                           a list
void check_configuration(std::string_view text);

}  // namespace hami::fuzz
