"""The backend HamiExamplePython, which adds `step` to a number."""

import hami


class HamiExamplePython(hami.Backend):
    """Adds `step` to a number."""

    step: int = 1

    def forward(self, batch: list[hami.Request]) -> None:
        for item in batch:
            try:
                item["result"] = item["data"] + self.step
            except TypeError as error:  # fails this request; the others continue
                item.fail(error)
