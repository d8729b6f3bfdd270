"""The phrases that `ci/prose` finds, what to write instead, and where each is correct English."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Except = Callable[[str, re.Match[str]], bool]


class Rule:
    """A phrase, what to write instead, and where it is correct English."""

    def __init__(
        self, pattern: str, suggestion: str, unless: Except | None = None, *, exact_case: bool = False
    ) -> None:
        self.pattern = re.compile(pattern, 0 if exact_case else re.IGNORECASE)
        self.suggestion = suggestion
        self.unless = unless

    def found_in(self, text: str) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text):
            if self.unless is None or not self.unless(text, match):
                yield match


# ---- where a phrase is correct English ----


def before(pattern: str) -> Except:
    """The text before the phrase ends with `pattern`."""
    compiled = re.compile(rf"{pattern}\s*\Z", re.IGNORECASE)
    return lambda text, match: compiled.search(text, max(0, match.start() - 80), match.start()) is not None


def after(pattern: str) -> Except:
    """The text after the phrase begins with `pattern`."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda text, match: compiled.match(text, match.end()) is not None


def either(*conditions: Except) -> Except:
    return lambda text, match: any(condition(text, match) for condition in conditions)


def sentence(text: str, match: re.Match[str]) -> str:
    """The sentence around a phrase, with the punctuation that ends it."""
    ends = [found.end() for found in re.finditer(r"[.?!]+(?=\s|\Z)|\n\s*\n|\n(?=[|*#-])", text)]
    start = max((end for end in ends if end <= match.start()), default=0)
    return text[start : min((end for end in ends if end >= match.end()), default=len(text))]


def in_a_question(text: str, match: re.Match[str]) -> bool:
    return sentence(text, match).rstrip().endswith("?")


def about_geometry(text: str, match: re.Match[str]) -> bool:
    words = (
        r"\b(radius|radii|draws?|drawn|pixels?|images?|ellipses?|polygons?|diameters?|centres?|centers?|contours?)\b"
    )
    return re.search(words, sentence(text, match), re.IGNORECASE) is not None


# ---- the rules ----

# Where a clause begins: the start of the text, of a paragraph, an item or a cell, or after punctuation.
CLAUSE = r"(?:\A|(?<=[.?!;:(|\"“—])|(?<=\n\n)|(?<=\n[*#>-])|(?<=\A[*#>-])|(?<=[ \n]-))\s*(?:[*_]{1,2})?"
# Words after which "who" cannot refer to a noun before it.
NO_NOUN = (
    r"(?<![\w-])(?:of|for|to|by|with|from|and|or|but|so|than|as|if|where|when|while|because|since|until|unless|that)\s+"
)
BE = r"(?:is|are|was|were|be|been|being)"

RULES = (
    Rule(
        rf"{CLAUSE}\bwhom?\b\s+(?!knows\b)[\w']+",
        'name the subject: "the caller that waits", "a request that …"',
        in_a_question,
    ),
    Rule(
        rf"{NO_NOUN}who\s+[\w']+",
        'name the subject: "of callers that wait"',
        either(in_a_question, before(r"\b(?:one|those|all|people|users?|authors?|callers?|readers?|somebody|anyone)")),
    ),
    Rule(r"\bwho(?:m)?ever\b", '"any caller that …", "the thread that …"'),
    Rule(
        rf"\b{BE}\s+no\b(?:\s+\w+|\s*\Z)",
        '"is not a …", "is not valid"',
        either(
            before(r"\bthere(?:\s+\w+){0,2}"),
            lambda text, match: (
                re.search(
                    r"\sno\s+(?:longer|different|matter|more|less|fewer|better|worse|sooner|wonder|good)\Z",
                    match.group(),
                    re.IGNORECASE,
                )
                is not None
            ),
            lambda text, match: (
                re.search(r"\w(?:er|ier)\Z", match.group()) is not None and after(r"\s+than\b")(text, match)
            ),
        ),
    ),
    Rule(rf"\b{BE}\s+(?:\w+ly\s+|also\s+|not\s+|then\s+)?told\b", '"the call raises …", "the log names …", "prints …"'),
    Rule(r"\btold\s+so\b", '"the call raises …", "the log names …"'),
    Rule(r"\btells?\s+so\b", '"reports this", "logs this"'),
    Rule(rf"\b{BE}\s+said\s+(?:so|of)\b", '"is reported", "is documented"'),
    Rule(r"\banew\b", '"again"'),
    Rule(r"\bfor\s+ever\b", '"indefinitely", "forever"'),
    Rule(r"\bpatience\b", '"timeout"; for closing "grace period"'),
    Rule(r"\bcompany\b", '"batching", "co-batched requests", "queue delay"'),
    Rule(
        r"\b(?:make|makes|made|making|no|has|have|had|having|for|enough|without)\s+room\b|\broom\s+(?:for|in|left)\b",
        '"capacity", "space"',
    ),
    Rule(r"\bcircles?\b", '"cycle", "deadlock cycle"', about_geometry),
    Rule(r"\blet(?:s|ting)?\s+go\b", '"releases"'),
    Rule(r"\b(?:at\s+)?all\s+the\s+same\b", '"nevertheless", "still", or delete it', before(rf"\b{BE}")),
    Rule(r"\b(?:a\s+way|ways)\s+of\s+(?:its|their|his|one's)\s+own\b", '"separately", "its own mechanism"'),
    Rule(r"\bha(?:s|ve|d)\s+(?:its|their|his)\s+way\b", '"takes effect", "wins"'),
    Rule(r"\bstands?\b(?![\w-])", '"is"', after(r"\s+(?:for|in\s+for|alone)\b")),
    Rule(r"\b(?:comes?|came|coming)\s+out\b", '"returns", "results in", "is the result"'),
    Rule(r"\bwhat\s+is\s+to\s+be\b", '"the value to …", "the request to …"'),
    Rule(
        rf"{CLAUSE}\bwhat\s+(?:is|are|was|were|has|had|can|cannot|may|must|needs?|comes|came|goes|waits|fails|runs|takes)\b",
        'name the subject: "requests that …", "a value that …"',
        in_a_question,
    ),
    Rule(r"\bLANGUAGE\.md\b|(?<![\w-])ABI\.md\b", "a page of hami-core/docs/reference", exact_case=True),
    Rule("\u00a7", "the title of the section"),
    Rule(r"\bt(?:ake|akes|aking|ook)\s+turns\b", '"run alternately", "start staggered"'),
    Rule(r"\b(?:its|their|his|whose|your)\s+turn\b", '"its start slot"'),
    Rule(r"\bbeg(?:in|ins|inning|an|un)\s+apart\b", '"start staggered"'),
    Rule(r"\bas\s+(?:it|they)\s+came\b", '"unchanged"'),
    Rule(r"\bnobody\b", '"no caller", "no thread", "not … by any …"'),
    Rule(r"\bsomebody\b", '"a caller", "another thread", "a user"'),
    Rule(r"\bwhatever\b", '"any"'),
    Rule(r"\bthe\s+ones?\s+(?:that|who|which)\b", "name the thing"),
    Rule(r"\bperhaps\b", '"may", or delete it'),
    Rule(r"\bthereby\b", '"so", or start a new sentence'),
    Rule(r"\bbesides\b", '"also", "in addition to", "except"'),
    Rule(r"\bhear(?:s|d|ing)?\s+of\b", '"learns of", "is notified of", "receives"'),
    Rule(r"\bbrings\b", '"provides", "contains", "installs"'),
)
