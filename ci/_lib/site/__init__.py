"""The documentation site: which files are pages, what is generated, and how the site is built and checked.

`build` runs in any environment. The other modules read the checkout and return Markdown; they need no package, so that
tests run without MkDocs. ci/site_hooks.py connects them to MkDocs.
"""
