"""Ed25519 signatures of catalogues and bundles, by means of `cryptography`. Keys are as openssl writes them."""

from __future__ import annotations

from hami import PluginError
from hami.cli import printable

from hami_tools.packages.policy_rules import raw_key

EXTRA = "pip install 'hami-tools[trust]'"


def require_signature(content: bytes, signature: bytes, key: str, source: str) -> None:
    """Raise PluginError unless `signature` of the catalogue `content` was made with the private key of `key`."""
    if not is_signed(content, signature, key, f"the policy wants the signature of the catalogue {printable(source)}"):
        raise PluginError(
            f"the catalogue {printable(source)} is not what the owner of the key in the policy signed: it is cut off, "
            f"was changed, or {printable(source)}.sig belongs to another one; get both again, or ask the administrator "
            "of this machine"
        )


def is_signed(content: bytes, signature: bytes, key: str, purpose: str) -> bool:
    """Return whether a signature of `content` was made with the private key of `key`, a line of base64.

    Raises PluginError if `cryptography` is missing; `purpose` says what wants the signature.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise PluginError(f"{purpose} verified, for which cryptography is missing: {EXTRA}") from error
    try:
        Ed25519PublicKey.from_public_bytes(raw_key(key)).verify(signature, content)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True
