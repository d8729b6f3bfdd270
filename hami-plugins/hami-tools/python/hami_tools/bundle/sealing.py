"""Signatures of bundles, by Ed25519, and their encrypted members, by AES-256-GCM; both by means of `cryptography`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hami import ConfigError, PluginError
from hami.cli import printable

from hami_tools.bundle.boot import layout
from hami_tools.bundle.boot.layout import Bundle, Member
from hami_tools.packages.policy_rules import raw_key
from hami_tools.packages.signatures import EXTRA, is_signed

KEY, KEY_COMMAND = "HAMI_BUNDLE_KEY", "HAMI_BUNDLE_KEY_COMMAND"
_NONCE, _TAG = 12, 16  # bytes, as recommended for GCM
_MOST = (1 << 36) - 32  # bytes that GCM encrypts with one nonce
_LONGEST_S = 60.0  # for the command that prints the key


# ---- signatures ----


def signature_of(manifest: bytes, key_file: str) -> dict[str, str]:
    """Return the signature of a manifest with a private key in PEM, for the seal."""
    serialization, ed25519 = _cryptography("--sign")
    try:
        private = serialization.load_pem_private_key(Path(key_file).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"--sign takes a private key in PEM, cannot read {printable(key_file)}: {error}") from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ConfigError(
            f"--sign takes an Ed25519 key, {printable(key_file)} is another one; make it with "
            "openssl genpkey -algorithm ed25519 -out key.pem"
        )
    der = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    public = private.public_key().public_bytes(*der)
    return {"key": _text(public), "signature": _text(private.sign(manifest))}


def signer(bundle: Bundle, accepted: Iterable[str] = ()) -> str:
    """Return the public key that signed a bundle, empty if none did. With `accepted`, it must be one of these.

    Raises ConfigError for a signature that is not valid, or by another key.
    """
    key, signature = str(bundle.seal.get("key", "")), str(bundle.seal.get("signature", ""))
    keys = list(accepted)
    if not signature:
        if keys:
            raise ConfigError(f"{printable(bundle.path)} is not signed, and must be by one of {_names(keys)}")
        return ""
    if keys and key not in keys:
        raise ConfigError(
            f"{printable(bundle.path)} is signed with the key {key}, expected {_names(keys)}; ask its maker for the key"
        )
    try:
        raw = base64.b64decode(signature, validate=True)
    except binascii.Error:
        raw = b""
    if not is_signed(bundle.manifest, raw, key, f"{printable(bundle.path)} has a signature, which must be"):
        raise ConfigError(
            f"the signature of {printable(bundle.path)} is not valid: it or its signature was changed; get it again"
        )
    return key


def public_key(given: str) -> str:
    """Return the public key in a PEM file, or given as the line between BEGIN and END."""
    text = given
    if os.path.isfile(given):
        try:
            lines = Path(given).read_text("ascii").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--key takes a public key in PEM, cannot read {printable(given)}: {error}") from error
        text = "".join(line for line in lines if not line.startswith("-----"))
    try:
        raw_key(text)
    except ValueError as error:
        raise ConfigError(
            f"--key takes the public key that openssl pkey -pubout prints, or its file, got {printable(given)}"
        ) from error
    return text


def _names(keys: list[str]) -> str:
    return " or ".join(keys)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


# ---- encryption ----


def secret(what: str, key_id: str = "") -> bytes:
    """Return the key for members, from the environment; with `key_id`, only that key."""
    text, source = os.environ.get(KEY, ""), KEY
    if command := os.environ.get(KEY_COMMAND, ""):
        text, source = _printed(command), KEY_COMMAND
    wanted = f"its key has the identity {key_id}; " if key_id else ""
    remedy = f"{wanted}set {KEY} to 64 hexadecimal digits, or {KEY_COMMAND} to a command that prints them"
    if not text:
        raise ConfigError(f"{what} needs a key: {remedy}")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigError(f"{source} is not a key for {what}: {remedy}")
    if key_id and identity(key) != key_id:
        raise ConfigError(f"{source} is the wrong key for {what}, it has the identity {identity(key)}: {remedy}")
    return key


def _printed(command: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=_LONGEST_S, check=True, text=True)
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise ConfigError(f"the command of {KEY_COMMAND} gave no key: {error}") from error
    return done.stdout.strip()


def identity(key: bytes) -> str:
    """Return a name for a key, which does not reveal it."""
    return hashlib.sha256(b"hami-bundle-key" + key).hexdigest()[:16]


def encrypted(name: str, key: bytes, parts: Callable[[], Iterable[bytes]]) -> Iterator[bytes]:
    """Yield a nonce, the encrypted parts, and the tag. The nonce follows from key, name and content.

    So equal inputs give equal bytes, and no two contents share a nonce. `parts` is called twice.
    """
    _, modes, algorithms, cipher = _cipher()
    nonce, size = hmac.new(key, name.encode() + b"\0", hashlib.sha256), 0
    for part in parts():
        nonce.update(part)
        size += len(part)
    if size > _MOST:
        raise ConfigError(f"{name} has {size} bytes, and at most {_MOST} can be encrypted; split it")
    first = nonce.digest()[:_NONCE]
    encryptor = cipher(algorithms.AES(key), modes.GCM(first)).encryptor()
    encryptor.authenticate_additional_data(name.encode())
    yield first
    for part in parts():
        yield encryptor.update(part)
    yield encryptor.finalize() + encryptor.tag


def decrypt(bundle: Bundle, member: Member, key: bytes, write: Callable[[bytes], object]) -> None:
    """Write the decrypted content of a member."""
    invalid, modes, algorithms, cipher = _cipher()
    decryptor: Any = None
    tail = b""
    for part in layout.verified_parts(bundle, member):
        tail += part
        if decryptor is None and len(tail) >= _NONCE:
            decryptor = cipher(algorithms.AES(key), modes.GCM(tail[:_NONCE])).decryptor()
            decryptor.authenticate_additional_data(member.name.encode())
            tail = tail[_NONCE:]
        if decryptor is not None and len(tail) > _TAG:
            write(decryptor.update(tail[:-_TAG]))
            tail = tail[-_TAG:]
    try:
        if decryptor is None or len(tail) != _TAG:
            raise ValueError
        write(decryptor.finalize_with_tag(tail))
    except (invalid, ValueError):
        raise ConfigError(
            f"{member.name} in {printable(bundle.path)} cannot be decrypted: it was encrypted with another key, or for "
            "another bundle; make the bundle again"
        ) from None


def _cryptography(option: str) -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise PluginError(f"{option} needs cryptography: {EXTRA}") from error
    return serialization, ed25519


def _cipher() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise PluginError(f"encrypted members of a bundle need cryptography: {EXTRA}") from error
    return InvalidTag, modes, algorithms, Cipher
