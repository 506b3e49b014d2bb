"""EfficientNet-lite0 (PyTorch checkpoint in the pre-zip format) → `tagger.onnx`, without PyTorch.

    image u8 [1,384,384,3] (the working image) → probability f32 [1000] (row of labels.json)

The graph averages 2×2 to 192×192, scales to (v − 127) / 128 and ends in a softmax, so that both eyes take the very same bytes
and there is no second resize to get wrong. The network was trained at 224 and is fully convolutional up to its pooling.
"""

import collections
import pickle
import struct

import numpy as np
from onnx_graph import FLOAT, UINT8, Graph, save

SIDE = 384
STAGES = [(1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1)]  # (blocks, stride of the first)
BATCH_NORM_EPSILON = 1e-3
STORAGES = {"FloatStorage": np.float32, "LongStorage": np.int64}


class _TensorReader(pickle.Unpickler):
    """Reads the pickled description of tensors; any class it does not know becomes an inert placeholder."""

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, shape, strides, *_: (storage, offset, shape, strides)
        if name == "OrderedDict":
            return collections.OrderedDict
        return name if name.endswith("Storage") else lambda *_: None

    def persistent_load(self, identifier):
        return identifier[1], identifier[2]  # storage type, key


def read_checkpoint(path):
    """Tensors by name from a pre-1.6 `torch.save` file: three header pickles, the state, the keys, then raw storages."""
    with path.open("rb") as file:
        for _ in range(3):
            _TensorReader(file).load()
        state, keys = _TensorReader(file).load(), _TensorReader(file).load()
        types = {storage[1]: STORAGES[storage[0]] for storage, *_ in state.values()}
        storages = {}
        for key in keys:
            (count,) = struct.unpack("<q", file.read(8))
            dtype = np.dtype(types[key])
            storages[key] = np.frombuffer(file.read(count * dtype.itemsize), dtype)
    tensors = {}
    for name, (storage, offset, shape, strides) in state.items():
        flat = storages[storage[1]][offset:]
        steps = [s * flat.itemsize for s in strides]
        tensors[name] = np.lib.stride_tricks.as_strided(flat, shape, steps).copy() if shape else flat[0]
    return tensors


class Network:
    """Emits EfficientNet-lite blocks; batch norms are folded into the convolutions."""

    def __init__(self, tensors, graph):
        self.tensors = tensors
        self.graph = graph

    def convolution(self, x, name, norm, stride=1, group=1, activation=True):
        t, g = self.tensors, self.graph
        kernel = t[f"{name}.weight"]
        factor = t[f"{norm}.weight"] / np.sqrt(t[f"{norm}.running_var"] + BATCH_NORM_EPSILON)
        bias = t[f"{norm}.bias"] - t[f"{norm}.running_mean"] * factor
        weights = [
            g.weight(f"{name}.kernel", (kernel * factor[:, None, None, None]).astype(np.float32)),
            g.weight(f"{name}.bias", bias.astype(np.float32)),
        ]
        shape = list(kernel.shape[2:])
        y = g.op("Conv", [x, *weights], strides=[stride] * 2, auto_pad="SAME_UPPER", group=group, kernel_shape=shape)
        if not activation:
            return y
        limits = [g.weight(n, np.array(v, np.float32)) for n, v in (("zero", 0), ("six", 6))]
        return g.op("Clip", [y, *limits])

    def block(self, x, number, stride, residual):
        name = f"_blocks.{number}"
        y = x
        if f"{name}._expand_conv.weight" in self.tensors:
            y = self.convolution(y, f"{name}._expand_conv", f"{name}._bn0")
        channels = self.tensors[f"{name}._depthwise_conv.weight"].shape[0]
        y = self.convolution(y, f"{name}._depthwise_conv", f"{name}._bn1", stride, channels)
        y = self.convolution(y, f"{name}._project_conv", f"{name}._bn2", activation=False)
        return self.graph.op("Add", [x, y]) if residual else y


def working_image_to_input(g):
    """2×2 mean, scaling."""
    channels = g.op("Transpose", [g.op("Cast", ["image"], to=FLOAT)], perm=[0, 3, 1, 2])
    small = g.op("AveragePool", [channels], kernel_shape=[2, 2], strides=[2, 2])
    centred = g.op("Sub", [small, g.weight("mean", np.array(127, np.float32))])
    return g.op("Mul", [centred, g.weight("inverse_scale", np.array(1 / 128, np.float32))])


def build(tensors):
    g = Graph("tagger")
    network = Network(tensors, g)
    x = network.convolution(working_image_to_input(g), "_conv_stem", "_bn0", stride=2)
    number = 0
    for blocks, stride in STAGES:
        for position in range(blocks):
            x = network.block(x, number, stride if position == 0 else 1, residual=position > 0)
            number += 1
    pooled = g.op("GlobalAveragePool", [network.convolution(x, "_conv_head", "_bn1")])
    last = [g.weight(f"class.{part}", tensors[f"_fc.{part}"].astype(np.float32)) for part in ("weight", "bias")]
    logits = g.op("Gemm", [g.op("Flatten", [pooled]), *last], transB=1)
    probability = g.op("Softmax", [logits], axis=1)
    g.op("Reshape", [probability, g.weight("flat", np.array([-1], np.int64))], ["probability"])
    return g.model([("image", UINT8, [1, SIDE, SIDE, 3])], [("probability", FLOAT, [1000])])


def convert(source, out):
    save(build(read_checkpoint(source)), out / "tagger.onnx")
    return ["tagger.onnx"]
