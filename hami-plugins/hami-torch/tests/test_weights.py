"""Weights for the module of a factory: state dicts and safetensors, saved before and after compiling."""

from __future__ import annotations

import sys

import hami
import pytest
import torch
from helpers import Scaled, message

KINDS = ["weights.pt", "weights.safetensors"]


def save(weights: dict[str, torch.Tensor], path: str) -> None:
    if path.endswith(".safetensors"):
        pytest.importorskip("safetensors.torch", reason="needs safetensors").save_file(weights, path)
    else:
        torch.save(weights, path)


class Tied(torch.nn.Module):
    """Two layers that share one weight, as the first and last layer of many language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


def compiled() -> torch.nn.Module:
    return torch.compile(Scaled(), backend="eager")


def compiled_in_place() -> torch.nn.Module:
    module = Scaled()
    module.compile(backend="eager")
    return module


@pytest.mark.usefixtures("torch_compiles")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("saved", [Scaled, compiled])
@pytest.mark.parametrize("factory", ["helpers:Scaled", "test_weights:compiled", "test_weights:compiled_in_place"])
def test_weights_load_whether_they_were_saved_compiled_or_not(pipe, tmp_path, kind, saved, factory):
    module, weights = saved(), str(tmp_path / kind)
    torch.nn.init.constant_(next(module.parameters()), 5)
    save(module.state_dict(), weights)
    served = pipe("TorchModel", factory=factory, weights=weights)
    assert served({"data": torch.ones(1, 2)})["result"].tolist() == [[5, 5]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_that_two_layers_share_is_stored_once(pipe, tmp_path, kind):
    weights = str(tmp_path / kind)
    save({"first.weight": torch.tensor([[0.0, 2.0], [3.0, 0.0]])}, weights)
    served = pipe("TorchModel", factory="test_weights:Tied", weights=weights)
    assert served({"data": torch.tensor([[1.0, 10.0]])})["result"].tolist() == [[6, 60]]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_do_not_fit_name_what_is_missing(pipe, tmp_path, kind):
    weights = str(tmp_path / kind)
    save({"weigth": torch.tensor(5.0)}, weights)
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="helpers:Scaled", weights=weights)
    assert message(raised) == (
        f'TorchModel: the weights "{weights}" do not fit the module that "helpers:Scaled" makes: Error(s) in loading '
        'state_dict for Scaled: Missing key(s) in state_dict: "weight". Unexpected key(s) in state_dict: "weigth".'
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"", b"no weights", bytes(100)])
def test_a_file_without_weights_is_rejected(pipe, tmp_path, kind, content):
    weights = tmp_path / kind
    save({}, str(weights))  # skips the test if safetensors is not installed
    weights.write_bytes(content)
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="helpers:Scaled", weights=str(weights))
    assert message(raised).startswith(
        f'TorchModel: the weights "{weights}" do not fit the module that "helpers:Scaled" makes: '
    )


def test_without_safetensors_the_error_names_the_package(pipe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"")
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="helpers:Scaled", weights=str(weights))
    assert message(raised) == (
        f'TorchModel: the weights "{weights}" need the package safetensors, which is not installed: '
        "pip install hami-torch[safetensors]"
    )


class RunsCode:
    def __reduce__(self):
        return (print, ("this must not run",))


def test_loading_weights_never_runs_code(pipe, tmp_path, capsys):
    weights = tmp_path / "weights.pt"
    torch.save({"weight": RunsCode()}, weights)
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="helpers:Scaled", weights=str(weights))
    assert message(raised).startswith(
        f'TorchModel: the weights "{weights}" do not fit the module that "helpers:Scaled" makes: '
    )
    assert capsys.readouterr().out == ""
