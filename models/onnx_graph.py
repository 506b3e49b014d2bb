"""A small builder for ONNX graphs, shared by the converters.

Names are derived from the order of the calls and nothing else, so that the same weights always give the same bytes.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 10


class Graph:
    """Collects nodes and weights; every `op` call returns the name of its (first) output."""

    def __init__(self, name):
        self.name = name
        self.nodes = []
        self.weights = {}

    def weight(self, name, array):
        """Stores `array` under `name` once and returns the name."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def op(self, kind, inputs, outputs=1, domain="", **attributes):
        """Appends one node. `outputs` is a count or a list of names."""
        number = len(self.nodes)
        names = outputs if isinstance(outputs, list) else [f"{kind}_{number}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, inputs, names, name=f"{kind}_{number}", domain=domain, **attributes)
        )
        return names[0] if len(names) == 1 else names

    def model(self, inputs, outputs):
        """Closes the graph. `inputs` and `outputs` are lists of (name, element type, shape)."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(*i) for i in inputs],
            [helper.make_tensor_value_info(*o) for o in outputs],
            list(self.weights.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="steadfast")


def save(model, path):
    """Writes the model with a fixed field order, so that two runs give the same bytes."""
    path.write_bytes(model.SerializeToString(deterministic=True))


FLOAT, INT32, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8
__all__ = ["FLOAT", "Graph", "INT32", "INT64", "UINT8", "onnx", "save"]
