"""Declares the arguments of the commands that write, verify and unpack bundles."""

from __future__ import annotations

from typing import Any

from hami.cli import add_command, add_inputs, real


def add_bundle_commands(commands: Any) -> None:
    """Add `bundle`, `verify` and `unpack`."""
    bundle = add_command(
        commands,
        "bundle",
        "hami_tools.bundle.build:bundle",
        "write a pipeline, its models and the packages that run it into one file",
        examples=[
            "hami bundle pipe.toml -o app.hami --input page.png",
            "hami bundle ocr -o ocr.hami --input page.png --platform aarch64 --python-version 3.12 --sign key.pem",
        ],
    )
    bundle.add_argument("source", metavar="SOURCE", help="TOML file, model file, packaged pipeline, or expression")
    bundle.add_argument("-o", "--output", required=True, metavar="FILE", help="the bundle, such as app.hami")
    add_inputs(bundle)
    bundle.add_argument(
        "--tolerance",
        type=real(),
        metavar="NUMBER",
        help="allowed difference of numbers in answers, relative to the largest; default: by their type",
    )
    bundle.add_argument(
        "--with", action="append", default=[], metavar="NAME", dest="extra", help="add a package, such as hami-serve"
    )
    bundle.add_argument(
        "--include", action="append", default=[], metavar="PATH", help="add a file or folder beside the configuration"
    )
    bundle.add_argument("--license", action="append", default=[], metavar="FILE", help="add a licence; repeatable")
    bundle.add_argument(
        "--platform",
        action="append",
        default=[],
        metavar="PLATFORM",
        help="packages for x86_64, aarch64 or a manylinux platform; repeatable; default: this machine",
    )
    bundle.add_argument(
        "--python-version",
        action="append",
        default=[],
        metavar="VERSION",
        help="packages for this CPython, such as 3.12; repeatable; default: this one",
    )
    bundle.add_argument("--from", dest="folder", metavar="FOLDER", help="take the packages from a folder of wheels")
    bundle.add_argument(
        "--index", action="append", default=[], metavar="URL", help="package index, instead of the one in your settings"
    )
    bundle.add_argument("--no-packages", action="store_true", help="without packages, for an environment that has them")
    bundle.add_argument("--sign", metavar="FILE", help="sign with this private key (Ed25519, PEM)")
    bundle.add_argument(
        "--encrypt",
        action="store_true",
        help="encrypt configuration, models and samples with the key in HAMI_BUNDLE_KEY or of HAMI_BUNDLE_KEY_COMMAND",
    )

    verify = add_command(
        commands,
        "verify",
        "hami_tools.bundle.commands:verify",
        "compare a bundle with its hashes, and its answers with those that it must give",
        examples=["hami verify app.hami --key key.pub"],
    )
    verify.add_argument("bundle", metavar="BUNDLE", help="the bundle")
    verify.add_argument("--key", metavar="KEY", help="public key that must have signed it, or its file in PEM")
    verify.add_argument("--hashes", action="store_true", help="compare the hashes only, and run nothing")

    unpack = add_command(
        commands,
        "unpack",
        "hami_tools.bundle.commands:unpack",
        "write the files of a bundle into a new folder",
        examples=["hami unpack app.hami app/"],
    )
    unpack.add_argument("bundle", metavar="BUNDLE", help="the bundle")
    unpack.add_argument("folder", metavar="FOLDER", help="the new folder")
