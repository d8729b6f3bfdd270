"""Verifies the signature of a catalogue with the Ed25519 key of the administrator, by means of `cryptography`."""

from __future__ import annotations

from hami import PluginError
from hami.cli import printable
from hami.packages import policy

EXTRA = "pip install 'hami-tools[trust]'"


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
        Ed25519PublicKey.from_public_bytes(policy.raw_key(key)).verify(signature, content)
    except InvalidSignature as error:
        raise PluginError(
            f"the catalogue {printable(source)} is not what the owner of the key in the policy signed: it is cut off, "
            f"was changed, or {printable(source)}.sig belongs to another one; get both again, or ask the administrator "
            "of this machine"
        ) from error
