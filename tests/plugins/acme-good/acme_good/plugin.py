"""The entry module: names the backends without importing unused ones."""

import hami
import pluggy

hookimpl = pluggy.HookimplMarker("hami")


class AcmeEcho(hami.Backend):
    """Gives back its data."""

    thread = "serialized"

    def forward(self, batch):
        for item in batch:
            item["result"] = item["data"]


@hookimpl
def hami_register(registry):
    registry.add(AcmeEcho)
    registry.add("AcmeAdd", "acme_good.backends:Add")
    registry.add("AcmeExtra", "acme_good.backends:Add")  # not declared in the metadata


@hookimpl
def hami_missing_backend(name):
    if name == "AcmeGold":
        return "it is part of acme-gold, ask sales@acme.example"
    return None


@hookimpl
def hami_unknown_key(key):
    return "write alloy" if key == "metal" else None


@hookimpl
def hami_report():
    return {"anvils": "17"}


@hookimpl
def hami_commands(subparsers):
    parser = subparsers.add_parser("acme", help="greet")
    parser.add_argument("name")
    parser.set_defaults(run=greet)


def greet(arguments):
    print(f"hello {arguments.name}")
    return 0
