"""Walk: follows the batch axis through the nodes of a model, its subgraphs and local functions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from hami_model_check._rows import size as sizes
from hami_model_check._rows.call import Call
from hami_model_check._rows.model import Function, Graph, Model, Node, Reference
from hami_model_check._rows.operators import ENGINE_RULES, MICROSOFT, ML, NEWEST, OPERATORS, Operator
from hami_model_check._rows.rules.along_axes import insert_axis
from hami_model_check._rows.rules.networks import draws, dropout
from hami_model_check._rows.value import (
    Batch,
    Element,
    Fails,
    Known,
    Lost,
    Mixes,
    Unknown,
    Value,
    after_loop,
    join,
    normal_axis,
    shape_of,
    uniform,
)

_MAX_CHOICES = 4  # so that the model is followed at most 16 times
_MAX_ROUNDS = 6  # of a loop until what is known about its state no longer changes
_Scope = MutableMapping[str, Known]

# What a rule may raise for a node that ONNX does not allow.
_UNEXPECTED = (
    sizes.TooLarge,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class TooManyNodes(Exception):
    """The budget of nodes is used up."""


class Frame(NamedTuple):
    """What the nodes of a body see in addition to tensors."""

    imports: Mapping[str, int]
    attributes: Mapping[str, object] | None  # of the call; None: the body is not that of a function


class Step(NamedTuple):
    """One node that runs subgraphs, with what it sees."""

    inputs: Sequence[Known | None]
    attributes: Mapping[str, object]
    scope: _Scope
    frame: Frame
    opset: int


class Walk:
    """Follows values through a model.

    Args:
        model: the model.
        engine: the engine that runs it.
        max_steps: largest number of nodes to follow, those of loops several times.
    """

    def __init__(self, model: Model, engine: str, max_steps: int) -> None:
        self._model = model
        self._engine = engine
        self._steps_left = max_steps
        self._loops = 0  # that the current node is in
        self._choices: list[bool] = []  # of branches whose results differ in their axes: whether the second is taken
        self._chosen = 0

    def outputs(self, inputs: Mapping[str, Known]) -> Iterator[list[Known]]:
        """Yield the values of the graph's outputs, once for each choice of branches whose results differ in their axes.

        Raises:
            TooManyNodes: the model is too large.
        """
        while True:
            self._chosen = 0
            yield self._graph(self._model.graph, {**inputs}, Frame(self._model.imports, None))
            while self._choices and self._choices[-1]:
                self._choices.pop()
            if not self._choices:
                return
            self._choices[-1] = True

    def _choose(self) -> bool:
        if self._chosen == len(self._choices):
            if self._chosen == _MAX_CHOICES:
                raise TooManyNodes
            self._choices.append(False)
        self._chosen += 1
        return self._choices[self._chosen - 1]

    def _graph(self, graph: Graph, scope: _Scope, frame: Frame) -> list[Known]:
        own = scope.maps[0] if isinstance(scope, ChainMap) else scope
        for name, constant in graph.constants.items():
            own.setdefault(name, constant)
        for node in graph.nodes:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise TooManyNodes
            for name, value in zip(node.outputs, self._node(node, scope, frame), strict=True):
                if name:
                    scope[name] = value
        missing = Lost(False, "", "", 0, "has an output that no node provides")
        return [scope.get(name, missing) for name in graph.outputs]

    def _node(self, node: Node, scope: _Scope, frame: Frame) -> Sequence[Known]:
        name = ".".join(part for part in (node.domain, node.operator) if part)
        opset = frame.imports.get(node.domain, 1 if node.domain in (MICROSOFT, ML) else 0)

        def lost(why: str, *, mixes: bool = False, quantized: bool = False) -> list[Known]:
            return [Lost(mixes, name, node.name, opset, why, quantized)] * len(node.outputs)

        try:
            results = self._results(node, opset, scope, frame)
        except _Passed as passed:
            return [passed.lost] * len(node.outputs)
        except Mixes as error:
            return lost(str(error), mixes=True, quantized=error.quantized)
        except Fails as error:
            return [Lost(False, name, node.name, opset, str(error), fails=True)] * len(node.outputs)
        except Unknown as error:
            return lost(str(error))
        except _UNEXPECTED:
            return lost("has inputs or attributes that its rule does not expect")
        more = len(node.outputs) - len(results)
        return [*results[: len(node.outputs)], *lost("has an output that no rule describes")[: max(more, 0)]]

    def _results(self, node: Node, opset: int, scope: _Scope, frame: Frame) -> Sequence[Known]:
        attributes = _resolved(node.attributes, frame.attributes)
        key = (node.domain, node.operator)
        function = self._model.functions.get((*key, node.overload))
        control = _CONTROL.get(node.operator) if not node.domain else None
        entry = OPERATORS.get(key)
        if function is not None:
            if entry is not None or control is not None or key == ("", "Constant"):
                raise Unknown("is a local function with the name of an operator")
            return self._call(function, [_get(scope, name) for name in node.inputs], attributes)
        if node.overload:
            raise Unknown("is an overload that the model does not define")
        if node.domain in NEWEST and not 0 < opset <= NEWEST[node.domain]:
            raise Unknown(f"is of opset {opset}; the rules describe opsets 1 to {NEWEST[node.domain]}")
        if key == ("", "Constant"):
            return [_constant(attributes)]
        inputs = [_get(scope, name) for name in node.inputs]
        if control is not None:
            return control(self, Step(inputs, attributes, scope, frame, opset))
        if entry is None:
            _raise_lost(inputs)
            raise Unknown("is not an operator that the rules describe")
        return self._apply(entry, node, opset, inputs, attributes)

    def _apply(
        self, entry: Operator, node: Node, opset: int, inputs: Sequence[Known | None], attributes: Mapping[str, object]
    ) -> Sequence[Known]:
        lost = _worst(inputs)
        if lost is not None:
            return [lost] * len(node.outputs)
        unknown = attributes.keys() - entry.attributes
        if unknown:
            raise Unknown(f'has the attribute "{min(unknown)}", which its rule does not know')
        values = [value for value in inputs if not isinstance(value, Lost)]
        call = Call(node.operator, opset, values, attributes, node.outputs, self._engine)
        of_size = any(value.of_size for value in call.given())
        if call.same_for_all() and not of_size and entry.rule not in (draws, dropout):
            try:
                return entry.rule(call)
            except (Fails, Mixes, Unknown, *_UNEXPECTED):
                return [uniform() for _ in node.outputs]
        if of_size and not entry.takes_sizes:
            raise Unknown("computes with the number of rows")
        if not node.domain:
            rule = ENGINE_RULES.get((self._engine, node.operator))
            holds = rule is not None and rule.first_opset <= opset <= rule.last_opset
            if rule is not None and holds and (not rule.attribute or call.integer(rule.attribute, 0)):
                raise Mixes(rule.why)
        return entry.rule(call)

    def _call(
        self, function: Function, inputs: Sequence[Known | None], attributes: Mapping[str, object]
    ) -> Sequence[Known]:
        if any(isinstance(value, Graph) for value in attributes.values()):
            raise Unknown("takes a graph as an attribute of a local function")
        scope: dict[str, Known] = {}
        for declared, value in zip(function.graph.inputs, inputs, strict=False):
            if value is not None:
                scope[declared.name] = value
        return self._graph(function.graph, scope, Frame(function.imports, {**function.defaults, **attributes}))

    def _inside(self, graph: object, step: Step, given: Sequence[Known]) -> list[Known]:
        """Return the outputs of a subgraph for its inputs."""
        if not isinstance(graph, Graph) or len(graph.inputs) != len(given):
            raise Unknown("has no valid body")
        own: dict[str, Known] = {item.name: value for item, value in zip(graph.inputs, given, strict=True)}
        return self._graph(graph, ChainMap(own, step.scope), step.frame)

    def _if(self, step: Step) -> Sequence[Known]:
        condition = _uniform_input(step.inputs, 0, "chooses its branch")
        known = condition.elements if condition is not None else None
        branches = [step.attributes.get("then_branch"), step.attributes.get("else_branch")]
        if condition is not None and condition.of_size:
            raise Unknown("chooses its branch by the number of rows")
        if known is not None and len(known) == 1 and not isinstance(known[0], sizes.Sum):
            return self._inside(branches[0 if known[0] else 1], step, ())
        first, second = (self._inside(branch, step, ()) for branch in branches)
        if not self._loops and any(_differ(a, b) for a, b in zip(first, second, strict=True)):
            return second if self._choose() else first
        wide: set[sizes.Size] = set()
        return [join(a, b, wide) for a, b in zip(first, second, strict=True)]

    def _loop(self, step: Step) -> Sequence[Known]:
        count = _uniform_input(step.inputs, 0, "repeats")
        condition = _uniform_input(step.inputs, 1, "repeats")
        for value in (count, condition):
            if value is not None and value.of_size:
                raise Unknown("repeats as often as there are rows")
        states = _given(step.inputs[2:])

        def body(current: Sequence[Known]) -> list[Known]:
            goes_on, *results = self._inside(step.attributes.get("body"), step, [Value(()), Value(()), *current])
            _uniform_input([goes_on], 0, "ends")
            if isinstance(goes_on, Value) and goes_on.of_size:
                raise Unknown("ends by the number of rows")
            return results

        serial = sizes.Symbol("").serial
        states, stacked = self._until_stable(body, states)
        results = [*states, *(_stacked(value, 0) for value in stacked)]
        return [after_loop(value, serial) for value in results]

    def _scan(self, step: Step) -> Sequence[Known]:
        if step.opset < 9:
            raise Unknown("has the inputs of opset 8; convert the model to opset 13 or newer")
        given = _given(step.inputs)
        scanned = step.attributes.get("num_scan_inputs")
        if not isinstance(scanned, int) or not 0 < scanned <= len(given):
            raise Unknown("has no valid number of inputs to scan")
        states, sequences = given[: len(given) - scanned], given[len(given) - scanned :]
        axes = step.attributes.get("scan_input_axes") or [0] * scanned
        if not isinstance(axes, list) or len(axes) != scanned:
            raise Unknown("has axes for another number of inputs")
        items = [_item(value, axis) for value, axis in zip(sequences, axes, strict=True)]

        def body(current: Sequence[Known]) -> list[Known]:
            return self._inside(step.attributes.get("body"), step, [*current, *items])

        serial = sizes.Symbol("").serial
        states, stacked = self._until_stable(body, states)
        places = step.attributes.get("scan_output_axes") or [0] * len(stacked)
        if not isinstance(places, list) or len(places) != len(stacked):
            raise Unknown("has axes for another number of outputs")
        results = [*states, *(_stacked(value, axis) for value, axis in zip(stacked, places, strict=True))]
        return [after_loop(value, serial) for value in results]

    def _until_stable(
        self, body: Callable[[Sequence[Known]], list[Known]], states: Sequence[Known]
    ) -> tuple[list[Known], list[Known]]:
        """Run a body until what is known about its state no longer changes. Return the state, and the rest."""
        wide: set[sizes.Size] = set()
        current = list(states)
        for _ in range(_MAX_ROUNDS):
            self._loops += 1
            try:
                results = body(current)
            finally:
                self._loops -= 1
            if len(results) < len(current):
                raise Unknown("has no valid body")
            after = [join(old, new, wide) for old, new in zip(current, results, strict=False)]
            if [value.key() for value in after] == [value.key() for value in current]:
                return after, results[len(current) :]
            current = after
        raise Unknown("changes its state in each round in another way")

    def _unfollowed(self, step: Step) -> Sequence[Known]:
        _raise_lost(step.inputs)
        raise Unknown("works on lists of tensors, whose rows are not followed")


_Control = Callable[[Walk, Step], Sequence[Known]]
_CONTROL: dict[str, _Control] = {
    "If": Walk._if,
    "Loop": Walk._loop,
    "Scan": Walk._scan,
    "SequenceMap": Walk._unfollowed,
}


def _get(scope: _Scope, name: str) -> Known | None:
    if not name:
        return None
    return scope.get(name) or Lost(False, "", "", 0, f'uses a tensor "{name}" that nothing provides')


def _differ(a: Known, b: Known) -> bool:
    """Return whether two values have no join that says how many axes there are, or where the rows are."""
    if isinstance(a, Lost) or isinstance(b, Lost):
        return isinstance(a, Lost) != isinstance(b, Lost) and not (isinstance(a, Lost) and a.fails)
    return a.batch != b.batch or a.rank != b.rank


def _given(inputs: Sequence[Known | None]) -> list[Known]:
    if any(value is None for value in inputs):
        raise Unknown("lacks an input")
    return [value for value in inputs if value is not None]


def _worst(inputs: Sequence[Known | None]) -> Lost | None:
    lost = [value for value in inputs if isinstance(value, Lost)]
    return min(lost, key=lambda value: (not value.fails, not value.mixes)) if lost else None


class _Passed(Exception):
    """The result of a node is lost because an input of it is."""

    def __init__(self, lost: Lost) -> None:
        super().__init__()
        self.lost = lost


def _raise_lost(inputs: Sequence[Known | None]) -> None:
    lost = _worst(inputs)
    if lost is not None:
        raise _Passed(lost)


def _uniform_input(inputs: Sequence[Known | None], index: int, what: str) -> Value | None:
    """Return an input that must be the same for all rows."""
    value = inputs[index] if index < len(inputs) else None
    if isinstance(value, Lost):
        raise _Passed(value)
    if value is not None and value.batch is not None:
        raise Mixes(f"{what} by the data of the rows")
    return value


def _item(value: Known, axis: int) -> Known:
    """Return what a body gets of an input that is scanned along an axis."""
    if isinstance(value, Lost):
        return value
    if value.of_size:
        raise Unknown("computes with the number of rows")
    shape = shape_of(value)
    axis = normal_axis(axis, len(shape))
    batch = value.batch
    if batch is not None:
        if batch.axis == axis:
            raise Mixes(f"runs over axis {axis}, which is the batch axis")
        batch = Batch(batch.axis - (batch.axis > axis), *batch[1:])
    return Value((*shape[:axis], *shape[axis + 1 :]), batch)


def _stacked(value: Known, axis: int) -> Known:
    if isinstance(value, Lost):
        return value._replace(fails=False)  # a loop that runs no round does not fail
    if value.of_size:
        raise Unknown("computes with the number of rows")
    if value.shape is None and value.batch is None:
        return uniform()
    return insert_axis(Value(value.shape, value.batch), normal_axis(axis, len(shape_of(value)) + 1), sizes.fresh())


def _resolved(attributes: Mapping[str, object], of_call: Mapping[str, object] | None) -> Mapping[str, object]:
    if not any(isinstance(value, Reference) for value in attributes.values()):
        return attributes
    if of_call is None:
        raise Unknown("refers to an attribute of a function, but is not in one")
    found = {}
    for name, value in attributes.items():
        if isinstance(value, Reference):
            if value.name not in of_call:
                continue
            value = of_call[value.name]
        found[name] = value
    return found


def _constant(attributes: Mapping[str, object]) -> Value:
    if len(attributes) != 1:
        raise Unknown("has no value, or more than one")
    ((name, value),) = attributes.items()
    if name in ("value", "sparse_value") and isinstance(value, Value):
        return value
    if name in ("value_int", "value_float") and isinstance(value, (int, float)):
        return Value((), elements=[value])
    if name in ("value_ints", "value_floats") and isinstance(value, list):
        elements: list[Element] = value
        return Value((len(elements),), elements=elements if len(elements) <= 64 else None)
    if name == "value_string":
        return Value(())
    if name == "value_strings" and isinstance(value, list):
        return Value((len(value),))
    return uniform()
