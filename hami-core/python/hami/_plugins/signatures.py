"""Verifies the signature of a catalogue with the Ed25519 key of the administrator, by means of `cryptography`."""

from __future__ import annotations

import base64

from hami._errors import PluginError
from hami._text import printable

EXTRA = "pip install 'hami-core[trust]'"
# An Ed25519 key as `openssl pkey -pubout` writes it: this prefix, then 32 bytes.
_PREFIX = bytes.fromhex("302a300506032b6570032100")
_LENGTH = 44


def raw_key(text: str) -> bytes:
    """Return the 32 bytes of a public key; raises ValueError for a text that is not one."""
    decoded = base64.b64decode(text, validate=True)
    if len(decoded) != _LENGTH or not decoded.startswith(_PREFIX):
        raise ValueError("it is not an Ed25519 key")
    return decoded[len(_PREFIX) :]


def require_signature(content: bytes, signature: bytes, key: str, source: str) -> None:
    """Raise PluginError unless `signature` of `content` was made with the private key of `key`."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise PluginError(
            f"the policy of this machine wants the signature of the catalogue {printable(source)} verified, for which "
            f"cryptography is missing: {EXTRA}"
        ) from error
    try:
        Ed25519PublicKey.from_public_bytes(raw_key(key)).verify(signature, content)
    except InvalidSignature as error:
        raise PluginError(
            f"the catalogue {printable(source)} is not what the owner of the key in the policy signed: it is cut off, "
            f"was changed, or {printable(source)}.sig belongs to another one; get both again, or ask the administrator "
            "of this machine"
        ) from error
