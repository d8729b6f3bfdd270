"""Starts a bundle with Python alone: python app.hami run page.png. Nothing of it runs before it is verified."""

import importlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

USAGE = """\
usage: python {path} COMMAND …

  run INPUT …      run the pipeline on files; also --text, --data, --json
  serve            serve it over HTTP, if the bundle was made with --with hami-serve
  verify           compare every member with its hash, and the answers with those that it must give
  unpack FOLDER    write its files into a folder

Any other command of hami that takes a pipeline, such as check, graph or bench, works as well.
"""
OLDEST = (3, 10)


def main() -> int:
    """Verify the bundle, unpack its packages into a private folder, and run a command of hami with them."""
    path = os.path.abspath(os.path.dirname(__file__))
    if sys.version_info < OLDEST:
        return _fail(f"{path} needs CPython 3.10 or newer, this is {sys.version.split()[0]}")
    if not path.endswith(".hami"):
        return _fail(f"the name of a bundle ends in .hami, rename {path}")
    if not (sys.flags.isolated and sys.flags.no_site):  # then no other package of this Python can be imported
        os.execv(sys.executable, [sys.executable, "-I", "-S", path, *sys.argv[1:]])
    if TYPE_CHECKING:
        from hami_tools.bundle.boot import folders, layout
    else:
        layout, folders = (importlib.import_module("hami_bundle." + name) for name in ("layout", "folders"))
    try:
        bundle = layout.open_bundle(path)
        layout.verify(bundle)
        if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
            print(USAGE.format(path=os.path.basename(path)), end="")
            return 0 if sys.argv[1:] else 2
        site = folders.packages(bundle)
    except layout.BundleError as error:
        return _fail(str(error))
    sys.path[:] = [site] + [entry for entry in sys.path if entry != path]
    from hami.cli import main as hami

    from hami_tools.bundle import opening

    opening.verified.add(bundle.digest)
    return hami([sys.argv[1], path, *sys.argv[2:]])


def _fail(text: str) -> int:
    print("error: " + text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
