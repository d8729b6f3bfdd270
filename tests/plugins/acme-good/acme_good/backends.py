"""A backend that is imported when it is used."""

import hami


class Add(hami.Backend):
    """Adds `step` to a number."""

    step: int = 1

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"] + self.step
