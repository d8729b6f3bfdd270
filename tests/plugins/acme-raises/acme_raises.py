"""A plugin whose hook fails."""

import pluggy


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    raise ValueError("no anvil\nand a second line that stays away")
