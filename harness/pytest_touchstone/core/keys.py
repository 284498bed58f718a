"""Keys in texts: what looks like one, and what the words before it say is one.

A key is given by the environment alone. Where one comes into a text anyway (an address, the arguments of a server, its
log), it stays out of all that is shown or kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

MARK: Final = "[redacted: looks like {}]"


class SecretPattern(NamedTuple):
    """A kind of secret key: its name, literals of which every match contains one, and a regular expression."""

    name: str
    literals: tuple[str, ...]
    form: re.Pattern[str]


def _pattern(name: str, form: str, *literals: str) -> SecretPattern:
    return SecretPattern(name, literals, re.compile(form))


_API: Final = "an API key"
PATTERNS: Final = (
    # Each begins with its literal, which makes the search quick; what stands before it is looked at afterwards.
    # OpenAI, Anthropic, DeepSeek and others: no word with hyphens, which has no digits.
    _pattern(_API, r"sk-(?<![\w-]sk-)(?=[\w-]*\d|[A-Za-z_]{20})[\w-]{20,}", "sk-"),
    _pattern(_API, r"hf_(?<!\whf_)[A-Za-z0-9]{20,}", "hf_"),  # Hugging Face
    _pattern(_API, r"AKIA(?<!\wAKIA)[A-Z0-9]{16}(?!\w)", "AKIA"),  # Amazon, long-lived
    _pattern(_API, r"ASIA(?<!\wASIA)[A-Z0-9]{16}(?!\w)", "ASIA"),  # Amazon, temporary
    _pattern(_API, r"gh[pousr]_(?<!\w\w\w\w_)[A-Za-z0-9]{30,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _pattern(_API, r"github_pat_(?<!\wgithub_pat_)\w{22,}", "github_pat_"),
    _pattern(_API, r"glpat-(?<!\wglpat-)[\w-]{20,}", "glpat-"),  # GitLab
    _pattern(_API, r"AIza(?<!\wAIza)[\w-]{35}", "AIza"),  # Google
    _pattern(_API, r"xox[abprs]-(?<!\wxox\w-)[A-Za-z0-9-]{10,}", "xox"),  # Slack
    _pattern(_API, r"[rs]k_live_(?<!\w\wk_live_)[A-Za-z0-9]{20,}", "k_live_"),  # Stripe
    _pattern(_API, r"npm_(?<!\wnpm_)[A-Za-z0-9]{36}", "npm_"),
    _pattern(_API, r"pypi-(?<!\wpypi-)[\w-]{50,}", "pypi-"),
    _pattern("a token", r"(?i:bearer) +(?=\S*\d)[A-Za-z0-9._~+/-]{20,}=*", "earer ", "EARER "),
    _pattern("a token", r"eyJ(?<!\weyJ)[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", "eyJ"),  # JSON Web Token
    _pattern(
        "a private key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]|-(?!----END))*(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
        "-----BEGIN ",
    ),
)
"""Kinds of keys by their form. A kind is added with a planted one in tests/reports/page/test_security.py."""

_NAMES: Final = "api[_-]?key|key|token|secret|password|passwd|signature|sig|credentials?"
_ENDS: Final = ("ey=", "oken=", "ecret=", "assword=", "asswd=", "ature=", "ig=", "ial=", "ials=")

_FORMS: Final = (
    *PATTERNS,
    # In addresses.
    _pattern("a password", r"(?<=://)[^/\s\"'<>?#]{0,256}:[^/\s\"'<>?#]{0,256}(?=@)", "://"),
    _pattern(
        _API,
        rf"(?<=[?&])(?i:(?:[\w.-]{{0,64}}[_.-])?(?:{_NAMES})=)[^&#\s\"'<>\[]+",
        *(*_ENDS, *(end.upper() for end in _ENDS)),
    ),
)
"""The patterns above, and those of keys in addresses."""


def keys_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield each key in a text, with the name of its kind."""
    for pattern in _FORMS:
        if any(literal in text for literal in pattern.literals):
            yield from ((pattern.name, match.group()) for match in pattern.form.finditer(text))


def has_key(text: str) -> bool:
    """Return whether a text holds what looks like a key."""
    return next(keys_in(text), None) is not None


def redact_key_forms(text: str) -> str:
    """Replace each key in a text by a mark."""
    for pattern in _FORMS:
        if any(literal in text for literal in pattern.literals):
            text = pattern.form.sub(MARK.format(pattern.name), text)
    return text


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Change every text within plain data, names included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {map_texts(name, change): map_texts(inner, change) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [map_texts(inner, change) for inner in value]
    return value


# What the words before it say

_VALUE: Final = r"""(?:"[^"]*"|'[^']*'|[^\s"',;&)\]}]+)"""
_SECRET: Final = (
    r"(?:[\w.-]*[-_.])?(?:(?:api|access|auth|private|secret|signing)[-_]?key|(?:hf|hub|api|access|auth|bearer|refresh"
    r"|secret|session)[-_]?token|secret|password|passwd|passphrase)"
)
"""Names of settings that hold keys: many others are about the tokens of texts."""

_OPTION: Final = re.compile(rf"--?(?:{_SECRET}|key|token)", re.IGNORECASE)
_NAMED: Final = re.compile(
    rf"""(?P<name>(?<![\w-]){_OPTION.pattern}(?:\s*=\s*|\s+(?!-)|\+|%20|%3D)
    | (?<![\w.-]){_SECRET}["']?\s*[=:]\s*[\[(]?
    | (?<=authorization)["']?\s*[=:]\s*["']?(?:\w+\s+)?)(?!\[?redacted:|bearer\s|basic\s)(?P<value>{_VALUE})""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT_SECRET: Final = re.compile(r"""["']?(?:none|true|false|null|\[.*|\d{1,5}|)["']?""", re.IGNORECASE)
"""Values that are no keys; what was replaced already is not replaced again."""


def redact(text: str) -> str:
    """Redact a text: keys by their form, and the values that follow names of keys."""

    def replaced(match: re.Match[str]) -> str:
        secret = not _NOT_SECRET.fullmatch(match["value"])
        return match["name"] + (MARK.format(_API) if secret else match["value"])

    return _NAMED.sub(replaced, redact_key_forms(text))


def option_keys(words: Sequence[str]) -> Iterator[str]:
    """Yield the keys among a command's options: ``--api-key VALUE`` and ``--api-key=VALUE``."""
    for index, word in enumerate(words):
        name, is_there, value = word.partition("=")
        if _OPTION.fullmatch(name):
            secret = value if is_there else "".join(words[index + 1 : index + 2])
            if secret and (is_there or not secret.startswith("-")) and not _NOT_SECRET.fullmatch(secret):
                yield secret


def redact_value(value: Any) -> Any:
    """Redact every text within plain data; in a list a key may follow its option."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            name: MARK.format(_API)
            if isinstance(inner, str) and inner and re.fullmatch(_SECRET, str(name), re.IGNORECASE)
            else redact_value(inner)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        secrets = {*option_keys([word if isinstance(word, str) else "" for word in value])}
        return [
            MARK.format(_API) if isinstance(word, str) and word in secrets else redact_value(word)
            for word in value
        ]
    return value
