"""A plugin that forgot to mark its hook."""


def hami_register(registry):
    raise AssertionError("never called: it has no mark")
