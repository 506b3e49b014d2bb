"""Makes a model of SmolVLM-256M's shape with random 4-bit weights, in the public three-file layout with fused operators.
It answers nothing sensible and takes exactly the time and memory of the real one: for benchmarks only, never shipped.

Usage: python make_bench_vlm.py TARGET_FOLDER
The small text files (tokenizer, chat template) come from the tiny SmolVLM replica of the tests.
"""

import json
import math
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

REPLICA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "replicas" / "tiny-smolvlm"
VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, INNER = 49280, 576, 30, 9, 3, 64, 1536
VISION_WIDTH, VISION_LAYERS, VISION_HEADS, VISION_INNER, TILE, PATCH, SCALE = 768, 12, 12, 3072, 512, 16, 4
CONTEXT, BLOCK = 8192, 32


class Graph:
    def __init__(self, seed):
        self.nodes, self.weights, self.stream = [], [], np.random.default_rng(seed)

    def weight(self, name, values):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operator, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def fused(self, operator, inputs, outputs, **attributes):
        return self.node(operator, inputs, outputs, domain="com.microsoft", **attributes)

    def linear(self, name, x, rows, columns, bias=False):
        """A 4-bit matrix product: blocks of 32, symmetric, activations in 8 bits, as public exports have it."""
        blocks = rows // BLOCK
        packed = self.stream.integers(0, 256, (columns, blocks, BLOCK // 2), dtype=np.uint8)
        scales = np.full((columns * blocks,), 0.25 / math.sqrt(rows), np.float32)
        inputs = [x, self.weight(f"{name}.packed", packed), self.weight(f"{name}.scales", scales)]
        y = self.fused("MatMulNBits", inputs, f"{name}.product" if bias else name, K=rows, N=columns, bits=4,
                       block_size=BLOCK, accuracy_level=4)
        if bias:
            y = self.node("Add", [y, self.weight(f"{name}.bias", np.zeros(columns, np.float32))], name)
        return y

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def decoder(path):
    g = Graph(1)
    g.weight("one", np.array(1, np.int32))
    g.weight("axis", np.array([1], np.int64))
    g.node("ReduceSum", ["attention_mask", "axis"], "length", keepdims=0)
    g.node("Cast", ["length"], "length32", to=TensorProto.INT32)
    g.node("Sub", ["length32", "one"], "last")
    g.node("Shape", ["attention_mask"], "shape")
    g.node("Gather", ["shape", g.weight("second", np.array(1, np.int64))], "total64", axis=0)
    g.node("Cast", ["total64"], "total", to=TensorProto.INT32)
    angles = np.outer(np.arange(CONTEXT), 1 / 1e5 ** (np.arange(0, HEAD, 2) / HEAD))
    g.weight("cos", np.cos(angles).astype(np.float32))
    g.weight("sin", np.sin(angles).astype(np.float32))
    ones = g.weight("ones", np.ones(WIDTH, np.float32))
    x, residual = "inputs_embeds", "inputs_embeds"
    x = g.node("SimplifiedLayerNormalization", [x, ones], "normed", epsilon=1e-5, axis=-1, stash_type=1)
    past, present = [], []
    for layer in range(LAYERS):
        name = f"layer{layer}"
        sides = [f"{{}}.{layer}.{side}" for side in ("key", "value")]
        past += [side.format("past_key_values") for side in sides]
        present += [side.format("present") for side in sides]
        q, k, v = (
            g.linear(f"{name}.{part}", x, WIDTH, heads * HEAD)
            for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
        )
        mixed = g.fused("GroupQueryAttention", [q, k, v, *past[-2:], "last", "total", "cos", "sin"],
                        [f"{name}.mixed", *present[-2:]], num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=1)
        x = g.linear(f"{name}.o", mixed, HEADS * HEAD, WIDTH)
        x = g.fused("SkipSimplifiedLayerNormalization", [x, residual, ones],
                    [f"{name}.a", "", "", f"{name}.ra"], epsilon=1e-5)
        residual = f"{name}.ra"
        gate, up = (g.linear(f"{name}.{part}", x, WIDTH, INNER) for part in ("gate", "up"))
        g.node("Sigmoid", [gate], f"{name}.s")
        g.node("Mul", [gate, f"{name}.s"], f"{name}.silu")
        g.node("Mul", [f"{name}.silu", up], f"{name}.inner")
        x = g.linear(f"{name}.down", f"{name}.inner", INNER, WIDTH)
        x = g.fused("SkipSimplifiedLayerNormalization", [x, residual, ones],
                    [f"{name}.b", "", "", f"{name}.rb"], epsilon=1e-5)
        residual = f"{name}.rb"
    g.node("Neg", ["num_logits_to_keep"], "negative")
    g.node("Reshape", ["negative", "axis"], "start")
    g.node("Slice", [x, "start", g.weight("end", np.array([1 << 31], np.int64)), "axis"], "kept")
    g.linear("logits", "kept", WIDTH, VOCABULARY)
    state = lambda name, length: value(name, TensorProto.FLOAT, ["batch_size", KV_HEADS, length, HEAD])
    g.save(path, [
        value("inputs_embeds", TensorProto.FLOAT, ["batch_size", "sequence_length", WIDTH]),
        value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
        value("num_logits_to_keep", TensorProto.INT64, []),
        *(state(name, "past_sequence_length") for name in past),
    ], [
        value("logits", TensorProto.FLOAT, ["batch_size", "kept", VOCABULARY]),
        *(state(name, "total_sequence_length") for name in present),
    ])


def vision(path):
    g = Graph(2)
    grid, patches = TILE // PATCH, (TILE // PATCH) ** 2
    shape = lambda name, sides: g.weight(name, np.array(sides, np.int64))
    g.node("Reshape", ["pixel_values", shape("tiles", [-1, 3, TILE, TILE])], "flat")
    kernel = (g.stream.standard_normal((VISION_WIDTH, 3, PATCH, PATCH)) / math.sqrt(3 * PATCH * PATCH)).astype(np.float32)
    g.node("Conv", ["flat", g.weight("kernel", kernel)], "patched", strides=[PATCH, PATCH])
    g.node("Reshape", ["patched", shape("rows", [0, VISION_WIDTH, patches])], "columns")
    g.node("Transpose", ["columns"], "tokens", perm=[0, 2, 1])
    places = (0.1 * g.stream.standard_normal((1, patches, VISION_WIDTH))).astype(np.float32)
    x = g.node("Add", ["tokens", g.weight("places", places)], "placed")
    ones, zeros = g.weight("ones", np.ones(VISION_WIDTH, np.float32)), g.weight("zeros", np.zeros(VISION_WIDTH, np.float32))
    for layer in range(VISION_LAYERS):
        name = f"block{layer}"
        y = g.node("LayerNormalization", [x, ones, zeros], f"{name}.n1", epsilon=1e-6)
        q, k, v = (g.linear(f"{name}.{part}", y, VISION_WIDTH, VISION_WIDTH, bias=True) for part in "qkv")
        y = g.fused("MultiHeadAttention", [q, k, v], f"{name}.mixed", num_heads=VISION_HEADS)
        y = g.linear(f"{name}.o", y, VISION_WIDTH, VISION_WIDTH, bias=True)
        x = g.node("Add", [x, y], f"{name}.x1")
        y = g.node("LayerNormalization", [x, ones, zeros], f"{name}.n2", epsilon=1e-6)
        y = g.linear(f"{name}.up", y, VISION_WIDTH, VISION_INNER, bias=True)
        y = g.fused("FastGelu", [y], f"{name}.gelu")
        y = g.linear(f"{name}.down", y, VISION_INNER, VISION_WIDTH, bias=True)
        x = g.node("Add", [x, y], f"{name}.x2")
    x = g.node("LayerNormalization", [x, ones, zeros], "normed", epsilon=1e-6)
    side = grid // SCALE
    x = g.node("Reshape", [x, shape("split", [-1, side, SCALE, side, SCALE, VISION_WIDTH])], "blocks")
    x = g.node("Transpose", [x], "gathered", perm=[0, 1, 3, 2, 4, 5])
    x = g.node("Reshape", [x, shape("merged", [-1, side * side, SCALE * SCALE * VISION_WIDTH])], "shuffled")
    g.linear("projected", x, SCALE * SCALE * VISION_WIDTH, WIDTH)
    # The mask of whole tiles changes nothing; it is read, as in the real model, so that it stays an input.
    g.node("Cast", ["pixel_attention_mask"], "mask", to=TensorProto.FLOAT)
    g.node("ReduceMax", ["mask"], "most", keepdims=0)
    g.node("Mul", ["projected", "most"], "image_features")
    g.save(path, [
        value("pixel_values", TensorProto.FLOAT, ["batch_size", "num_images", 3, TILE, TILE]),
        value("pixel_attention_mask", TensorProto.BOOL, ["batch_size", "num_images", TILE, TILE]),
    ], [value("image_features", TensorProto.FLOAT, ["tiles", side * side, WIDTH])])


def embeddings(path):
    g = Graph(3)
    table = g.stream.standard_normal((VOCABULARY, WIDTH), dtype=np.float32)
    g.node("Gather", [g.weight("table", table), "input_ids"], "inputs_embeds")
    sequence = ["batch_size", "sequence_length"]
    g.save(path, [value("input_ids", TensorProto.INT64, sequence)],
           [value("inputs_embeds", TensorProto.FLOAT, [*sequence, WIDTH])])


def main():
    target = pathlib.Path(sys.argv[1])
    (target / "onnx").mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(REPLICA / name, target / name)
    config = json.loads((REPLICA / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = CONTEXT
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    settings = json.loads((REPLICA / "preprocessor_config.json").read_text())
    settings["size"], settings["max_image_size"] = {"longest_edge": 2048}, {"longest_edge": TILE}
    (target / "preprocessor_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    decoder(target / "onnx" / "decoder_model_merged_q4.onnx")
    vision(target / "onnx" / "vision_encoder_q4.onnx")
    embeddings(target / "onnx" / "embed_tokens.onnx")


if __name__ == "__main__":
    main()
