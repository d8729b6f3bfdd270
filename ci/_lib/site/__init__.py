"""The documentation site: how it is built and checked. ci/pages contains what MkDocs loads."""
