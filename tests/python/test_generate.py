"""Generated backends: reference/expressions.md, "Generated backends"."""

from __future__ import annotations

from typing import Any

import hami
import pytest


class Trace(hami.Backend):
    """Appends its step to `data`, then runs its children."""

    thread = "serialized"
    child_count = (0, None)
    step: str = "-"

    def forward(self, batch: list[Any]) -> None:
        for item in batch:
            item["result"] = [*item["data"], type(self).__name__ + self.step]
        for child in self.children:
            for item in batch:
                item["data"] = item["result"]
                del item["result"]
            child.forward(batch)


@pytest.fixture(autouse=True)
def _backends() -> None:
    for name in "ABCDQ":
        hami.register(name)(type(name, (Trace,), {}))


def answer(expression: str, **keys: object) -> Any:
    with hami.pipe({"backend": expression, **keys}) as pipe:
        return pipe({"data": []})["result"]


@pytest.mark.parametrize(
    ("body", "order"),
    [("A", "AQ"), ("A[B,C]", "ABCQ"), ("A[B,C[D]]", "ABCDQ")],
)
def test_a_dependency_goes_to_the_last_item_of_the_last_phase_of_the_last_bracket(body: str, order: str) -> None:
    """For `Z=A` that is A, for `Z=A[B,C]` it is C, for `Z=A[B,C[D]]` it is D."""
    hami.generate("Z", body)
    assert answer("Z[Q]") == [name + "-" for name in order]


def test_without_a_dependency_a_generated_backend_equals_its_body() -> None:
    hami.generate("Z", "A[B]")
    assert answer("S[Z]") == ["A-", "B-"]


def test_a_parameter_reaches_every_backend_of_the_body_that_declares_it() -> None:
    hami.generate("Z", "A[B(step=own)]")
    assert answer("Z(step=1)[Q]") == ["A1", "Bown", "Q-"]


def test_the_node_and_the_use_override_the_defaults() -> None:
    hami.generate("Z", "A[B]", step="d")
    assert answer("Z") == ["Ad", "Bd"]
    assert answer("Z", step="n") == ["An", "Bn"]
    assert answer("Z(step=u)", step="n") == ["Au", "Bu"]


def test_a_model_loader_of_the_body_sees_the_model_of_the_use() -> None:
    class Loads(hami.Backend):
        model: str

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = f"{type(self).__name__} {self.model}"

    for name in ("Onnx", "Engine"):
        hami.register(name)(type(name, (Loads,), {}))
    hami.generate("Z", "ModelLoader[(.onnx)Onnx,(.trt)Engine]", model="default.trt")
    assert answer("Z") == "Engine default.trt"
    assert answer("Z", model="node.onnx") == "Onnx node.onnx"
    assert answer("Z(model=use.trt)", model="node.onnx") == "Engine use.trt"
    assert answer("Z(model=use.bin,model_type=onnx)") == "Onnx use.bin"


def test_a_reflect_of_the_body_sees_the_expression_of_the_use() -> None:
    hami.generate("Z", "S[A,Reflect[post]]", post="B")
    assert answer("Z") == ["A-", "B-"]
    assert answer("Z", post="C(step=n)") == ["A-", "Cn"]
    assert answer("Z(post=D)", post="C") == ["A-", "D-"]
    assert answer("Z(post='D(step=u)[Q]')") == ["A-", "Du", "Q-"]
    hami.generate("Z", "S[A,Reflect[post,B]]")
    assert answer("S[Z(post=C),Z]") == ["A-", "C-", "A-", "B-"]


def test_an_expression_given_to_a_generated_backend_is_resolved_where_it_is_given() -> None:
    """The names and parameters of the body are not visible there, so a generated backend may be given to itself."""
    hami.generate("Z", "S[A,Reflect[post,Identity]]")
    assert answer("Z(post='Z(post=B)')") == ["A-", "A-", "B-"]
    assert answer("Z(post='Reflect[post]')", post="C") == ["A-", "C-"]
    hami.generate("Y", "Z(post='Reflect[last]')")
    assert answer("Y(last=D)") == ["A-", "D-"]


def test_a_body_may_use_another_generated_backend() -> None:
    hami.generate("Y", "A[B]")
    hami.generate("Z", "Y[C]")
    assert answer("Z(step=1)[Q]") == ["A1", "B1", "C1", "Q-"]


def test_the_dependency_sees_names_of_its_surroundings_and_the_body_does_not() -> None:
    hami.generate("Z", "A")
    assert answer("IoC[q:=Q;Z[q]]") == ["A-", "Q-"]
    hami.generate("Z", "A[q]")
    with pytest.raises(hami.BackendNotFound, match='backend "q" not found'):
        hami.pipe("IoC[q:=Q;Z]")


@pytest.mark.parametrize(
    ("body", "source", "problem"),
    [
        (
            "S[A,Reflect[post]]",
            "Z(post='B(stp=1)')",
            'unknown parameter "stp" for B; did you mean "step"?  (accepts: step: str = "-")\n'
            '  in  B(stp=1)   (node "default")\n'
            "        ^^^",
        ),
        (
            "A[Z]",
            "Z",
            "the generated backend Z contains itself\n"
            '  in  A[Z]   (generated backend Z, node "default")\n'
            "        ^\n"
            "  its body is  A[Z]",
        ),
        (  # the last class of the body must accept one more item
            "A[Identity]",
            "Z[Q]",
            'Identity takes no brackets\n  in  A[Identity]   (generated backend Z, node "default")\n        ^^^^^^^^',
        ),
        (
            "A[B]",
            "Z(stp=1)",
            'unknown parameter "stp" for Z; did you mean "step"?\n'
            '  in  Z(stp=1)   (node "default")\n'
            "        ^^^\n"
            "  its body is  A[B]",
        ),
    ],
    ids=["in a given expression", "contains itself", "dependency without brackets", "parameter of no backend"],
)
def test_an_error_shows_the_expression_it_is_in(body: str, source: str, problem: str) -> None:
    hami.generate("Z", body)
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe(source)
    assert str(caught.value) == problem


def test_a_default_that_no_backend_declares_is_an_error() -> None:
    hami.generate("Z", "S[A,Reflect[post]]", step="d", post="B", colour="red")
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe({"backend": "Z(step=u)", "post": "C"})
    assert str(caught.value) == (
        'unknown parameter "colour" in the defaults of Z; no backend of its body declares it\n'
        '  in  Z(step=u)   (node "default")\n'
        "      ^\n"
        "  its body is  S[A,Reflect[post]]"
    )


@pytest.mark.parametrize("expression", [5, None, b"A", ["A"], Trace])
def test_a_body_must_be_text(expression: Any) -> None:
    with pytest.raises(hami.ConfigError, match='the expression of "Z" must be a str such as "S\\[A,B\\]", got '):
        hami.generate("Z", expression)


def test_an_invalid_body_is_rejected_at_once() -> None:
    with pytest.raises(hami.ConfigError, match='"\\[" is never closed'):
        hami.generate("Z", "A[B")


def test_a_name_of_the_core_cannot_be_used() -> None:
    with pytest.raises(hami.AlreadyExists, match='"Identity" is a backend of the core; choose another name'):
        hami.generate("Identity", "A")
