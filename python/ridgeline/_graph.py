"""Networks whose layers branch: calls of layers, the nodes that they return, and `Graph`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .nn import Layer


class Node:
    """The output of a layer, or the input of a network. Layers are called on nodes; nodes can be added and multiplied."""

    def __init__(self, layer: Layer | None, inputs: Sequence[Node], shape: tuple[int, ...] | None = None) -> None:
        for i, each in enumerate(inputs):
            if not isinstance(each, Node):
                raise TypeError(f"input {i} of {layer!r}: got {type(each).__name__}, expected what a layer or "
                                "nn.Input gives")
        self.layer = layer
        self.inputs: tuple[Node, ...] = tuple(inputs)
        self.shape = shape

    def __add__(self, other: Node) -> Node:
        from .nn import Add

        return Add()(self, other)

    def __mul__(self, other: Node) -> Node:
        from .nn import Multiply

        return Multiply()(self, other)

    def __repr__(self) -> str:
        return "Input()" if self.layer is None else f"Node({self.layer!r})"


def Input(shape: Sequence[int] | None = None) -> Node:  # noqa: N802  (a constructor, as in Keras)
    """The input of a `Graph`; `shape` is that of one sample, if the first layer does not determine it."""
    return Node(None, (), None if shape is None else tuple(int(each) for each in shape))


class Graph:
    """A network from an input to an output: every layer that `output` depends on.

        x = nn.Input((16,))
        a = nn.ReLU()(nn.Linear(16, 16)(x))
        model = rl.Model(nn.Graph(x, nn.Linear(16, 3)(a + x)))

    Layers are numbered in the order in which they can run, and their weights are named by these numbers.
    """

    def __init__(self, input: Node, output: Node) -> None:
        if not isinstance(input, Node) or input.layer is not None:
            raise TypeError(f"Graph: input: got {input!r}, expected what nn.Input gives")
        if not isinstance(output, Node) or output.layer is None:
            raise TypeError(f"Graph: output: got {output!r}, expected what a layer gives")
        self.input = input
        self.nodes = _sorted(input, output)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers in running order."""
        return tuple(node.layer for node in self.nodes if node.layer is not None)

    def config(self) -> list[dict[str, Any]]:
        """The layers as tables of docs/config.md."""
        place = {id(node): i for i, node in enumerate(self.nodes)}
        tables = []
        for i, node in enumerate(self.nodes):
            assert node.layer is not None
            table = node.layer.config()
            before = self.nodes[i - 1] if i > 0 else self.input
            if any(each is not before for each in node.inputs) or node.layer.joins:
                table["inputs"] = [_name(place.get(id(each))) for each in node.inputs]
            tables.append(table)
        for name in {name for table in tables for name in table.get("inputs", ())} - {"input"}:
            tables[int(name[1:])]["name"] = name
        return tables

    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of a sample, if nn.Input or the layers that read it determine it."""
        if self.input.shape is not None:
            return self.input.shape
        for node in self.nodes:
            assert node.layer is not None
            if self.input in node.inputs and node.layer.input_shape() is not None:
                return node.layer.input_shape()
        return None

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        lines = []
        for i, table in enumerate(self.config()):
            reads = f" <- {', '.join(table['inputs'])}" if "inputs" in table else ""
            lines.append(f"  ({i}): {self.layers[i]!r}{reads}\n")
        return f"Graph(\n{''.join(lines)})"


def _name(place: int | None) -> str:
    return "input" if place is None else f"n{place}"


def _sorted(input: Node, output: Node) -> list[Node]:
    """The nodes that lead to the output, each after those that it reads."""
    done: dict[int, Node] = {}
    waiting = [output]
    while waiting:
        node = waiting[-1]
        if node.layer is None:
            if node is not input:
                raise ValueError("Graph: got an output that depends on another nn.Input, expected one input")
            waiting.pop()
        elif id(node) in done:
            waiting.pop()
        elif missing := [each for each in node.inputs if each.layer is not None and id(each) not in done]:
            waiting.extend(reversed(missing))
        else:
            if any(each.layer is None and each is not input for each in node.inputs):
                raise ValueError("Graph: got an output that depends on another nn.Input, expected one input")
            done[id(node)] = waiting.pop()
    nodes = list(done.values())
    seen: dict[int, int] = {}
    for i, node in enumerate(nodes):
        first = seen.setdefault(id(node.layer), i)
        if first != i:
            raise ValueError(f"Graph: got {node.layer!r} twice, at {first} and {i}, expected a layer for each place: "
                             "layers do not share weights")
    return nodes
