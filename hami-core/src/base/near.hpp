// "Did you mean": candidates near a misspelt name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hami {

// At most `limit` candidates by edit distance (transpositions count one, case differences nearly nothing), best first.
std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& candidates,
                                    std::size_t limit = 3);

// Among many mistakes of one kind, suggestions are searched for the first ones only: each search compares all candidates.
inline constexpr std::size_t kMaxSuggestions = 20;

// `; did you mean A or B?`, or "" if nothing is near.
std::string did_you_mean(const std::vector<std::string>& near, bool quoted = false);

}  // namespace hami
