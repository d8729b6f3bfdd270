"""A plugin whose tensor backends take the memory of a device."""

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


class Named(hami.Backend):
    """Sets `result` to what was called: name, device, parameters and the texts of the batch."""

    thread = "concurrent"

    device: str = "cuda"
    built = []  # noqa: RUF012

    def init(self, options):
        self.built.append((type(self).__name__, self.device))
        self.instance = options["instance"]

    def forward(self, batch):
        texts = [part.text for item in batch for part in _parts(item["data"])]
        if "fails" in texts:
            raise hami.RequestError(f"{type(self).__name__} failed on {texts}")
        for item in batch:
            item["result"] = (type(self).__name__, self.device, self.detail(), texts)

    def detail(self):
        return self.instance


def _parts(data):
    return list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else [data]


class CatTensor(Named):
    stack: bool = False

    def detail(self):
        return self.stack


class SplitTensor(CatTensor):
    pass


class SoftmaxTensor(Named):
    axis: int = -1

    def detail(self):
        return self.axis


class ContiguousTensor(Named):
    pass


class ArgMaxTensor(Named):
    """Lacks the parameter `axis`."""


@pluggy.HookimplMarker("hami")
def hami_register(registry):
    for cls in (CatTensor, SplitTensor, SoftmaxTensor, ContiguousTensor, ArgMaxTensor):
        registry.add(cls)
