"""A plugin whose hook lacks the pluggy mark."""


def hami_register(registry):
    raise AssertionError("never called: it has no mark")
