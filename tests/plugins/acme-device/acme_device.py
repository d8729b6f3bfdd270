"""A plugin that implements names for a device."""

import hami
import pluggy


class OnDevice:
    """A tensor that claims to be on cuda:N."""

    def __init__(self, text, index=0):
        self.text = text
        self.index = index

    def __dlpack_device__(self):
        return 2, self.index

    def __dlpack__(self, **_):
        raise BufferError("not on the CPU")


class Where(hami.Backend):
    """Sets `result` to the device, the parameter `axis` and the texts of the batch."""

    thread = "concurrent"

    device: str = "cuda"
    axis: int = -1
    built = []  # noqa: RUF012

    def init(self, options):
        self.built.append((self.device, options["instance"]))

    def forward(self, batch):
        texts = [part.text for item in batch for part in _parts(item["data"])]
        if "fails" in texts:
            raise hami.RequestError(f"failed on {texts}")
        for item in batch:
            item["result"] = (self.device, self.axis, texts)


def _parts(data):
    return list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else [data]


class Length(hami.Backend):
    """Lacks the parameter `axis`."""

    def forward(self, batch):
        raise AssertionError


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add("Where", "acme_device:Where", device="cuda")
    registry.add(Length, device="cuda")
