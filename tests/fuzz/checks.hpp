// What must hold for any input whatever. The fuzz targets try inputs, tests/cpp/test_fuzz_corpus.cpp replays those kept.
#pragma once

#include <stdexcept>
#include <string_view>

namespace hami::fuzz {

// Something that must hold does not: a bug of the core.
struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};

// The text is an expression that prints and parses back to the same tree, or is refused with a place within it.
void check_expression(std::string_view text);

// The text, a configuration in the form below, is planned the same way twice, or every problem has a message.
//   entrypoint = Forward[node.a]          before any section: entrypoint, dag_entrypoint, else a provider
//   [a]                                   a node; [global] is the section of that name
//   backend = S[Identity,Identity]        a str; whole numbers, numbers, true and false are read as such
//   next = |b|c                           a list
void check_configuration(std::string_view text);

}  // namespace hami::fuzz
