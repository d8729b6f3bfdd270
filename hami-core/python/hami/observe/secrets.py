"""Hides secrets in text that leaves the process, such as messages of exceptions."""

from __future__ import annotations

import re
import urllib.parse

from hami._config.values import referred

MIN_SECRET = 4  # characters: a shorter value is a number or a switch, and found in other text by chance
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


def redact(text: str) -> str:
    """Return a text with `***` for secrets of configurations.

    These are the values of environment variables that a configuration of this process has referred to with
    `${env:NAME}`, if they have 4 characters or more, and user names and passwords in URLs.

    >>> hami.observe.redact("cannot reach https://me:s3cret@10.0.0.1/v2")
    'cannot reach https://***@10.0.0.1/v2'

    Args:
        text: The text. A value is also found as `repr` writes it, and with the escapes of a URL.

    Returns:
        The same text, if it has no secrets.
    """
    for value in sorted(referred, key=len, reverse=True):  # one may contain another one
        if len(value) >= MIN_SECRET:
            for form in {value, repr(value)[1:-1], urllib.parse.quote(value, safe="")}:
                text = text.replace(form, "***")
    return _CREDENTIALS.sub("***@", text) if "@" in text else text
