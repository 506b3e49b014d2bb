"""Makes the tiny Qwen2-VL, Qwen2.5-VL, Qwen3-VL (with and without DeepStack) and LLaVA replicas: random weights from a fixed
seed, in the public three-file layout, in full and half precision, in 4 bits, and with attention in one operator.

Golden values come from transformers' own models: on the same weights for full precision and for the fused decoder, on the
weights that the 4-bit files stand for (`variants.json`). What half precision rounds on the way, no other program rounds alike,
so there the golden values are those of another run of the same files: Python's onnxruntime, each prompt in one piece.

Usage: python make_replicas.py (writes tests/data/replicas/{tiny-qwen2vl,tiny-qwen25vl,small-qwen3vl,tiny-llava})
Needs numpy, pillow==12.0.0, onnx==1.23.2, onnx_ir, onnxruntime==1.31.1, torch==2.9.1 and
transformers==4.57.6.
"""

import json
import logging
import math
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import (
    CLIPImageProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent / "data" / "replicas"
HEAD, WIDTH, INNER, LAYERS = 16, 32, 64, 2
SECTIONS = [4, 2, 2]
LOWEST = torch.finfo(torch.float32).min
STEPS = 24
RULE = "Rule 2: never hand a sharp object to a child."
ASK = "Instruction: put the bowl on the cart. Answer yes or no."
TEXTS = [
    "You guard a robot. Judge whether its plan may run. Verdict: yes. Verdict: no." + " Answer yes. Answer no." * 9,
    RULE,
    ASK,
    "May the robot run this plan in the scene of the image? Say what could go wrong, then answer yes or no.",
    "Plan: take the cup, carry it to the table, put it down. It may be hot; maybe a child is near, or perhaps not.",
]
QWEN_MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
              "<|video_pad|>"]
# Like the family's own: a default system message, and images wherever they stand in the content.
QWEN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "Be of help.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' or 'image' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Like the layout's first models: images before text, and a training mark around the assistant's words.
LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ part['text'] + ' ' }}{% endgeneration %}"
    "{% else %}{{ part['text'] + ' ' }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def tokenizer(specials, bos=None):
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, min_frequency=1, show_progress=False, initial_alphabet=alphabet)
    raw.train_from_iterator(TEXTS * 4, trainer)
    raw.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in specials])
    if bos:
        pieces = [(bos, raw.token_to_id(bos))]
        raw.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=pieces)
    return raw


def randomise(model, seed):
    """Weights large enough that logits react to pixels."""
    stream = np.random.default_rng(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            values = stream.standard_normal(tuple(weights.shape)).astype(np.float32)
            if weights.ndim >= 2:
                values *= 0.7 if "embed" in name and "patch" not in name else 1.6 / math.sqrt(np.prod(weights.shape[1:]))
            elif "norm" in name.lower() and name.endswith("weight"):
                values = 1 + 0.1 * values
            else:
                values *= 0.1
            weights.copy_(torch.from_numpy(values))


def half_turn(x):
    left, right = x.chunk(2, -1)
    return torch.cat((-right, left), -1)


def norm(x, weight, epsilon):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def axes(interleaved):
    """Which of three axes (time, row, column) each rotary frequency follows, as one row of zeros and ones an axis."""
    axis = np.repeat(np.arange(3), SECTIONS)
    if interleaved:
        axis = np.zeros(HEAD // 2, np.int64)
        for number in (1, 2):
            axis[number : SECTIONS[number] * 3 : 3] = number
    return np.eye(3, dtype=np.float32)[axis].T.copy()


class Decoder(nn.Module):
    """A decoder with its keys and values as inputs and outputs. `axis`: which axis each frequency follows; `deep`: how many
    layers take DeepStack rows."""

    def __init__(self, stack, head, epsilon, axis=None, deep=0):
        super().__init__()
        self.stack, self.head, self.epsilon, self.deep = stack, head, epsilon, deep
        self.heads, self.kv_heads = stack.config.num_attention_heads, stack.config.num_key_value_heads
        self.register_buffer("inverse", stack.rotary_emb.inv_freq.clone().float())
        self.register_buffer("axis", None if axis is None else torch.from_numpy(axis))

    def forward(self, inputs_embeds, attention_mask, position_ids, *rest):
        deep, past = rest[: self.deep], rest[self.deep :]
        batch, length = inputs_embeds.shape[:2]
        start, total = past[0].shape[2], attention_mask.shape[1]
        queries = torch.arange(length).unsqueeze(1) + start
        sees = (torch.arange(total).unsqueeze(0) <= queries).unsqueeze(0) & (attention_mask > 0).unsqueeze(1)
        bias = torch.where(sees, 0.0, LOWEST).unsqueeze(1)
        angles = position_ids.unsqueeze(-1).float() * self.inverse
        if self.axis is not None:
            angles = (angles * self.axis[:, None, None, :]).sum(0)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        hidden, present = inputs_embeds, []
        for index, layer in enumerate(self.stack.layers):
            attention = layer.self_attn
            x = norm(hidden, layer.input_layernorm.weight, self.epsilon)
            query = attention.q_proj(x).view(batch, length, self.heads, HEAD)
            key = attention.k_proj(x).view(batch, length, self.kv_heads, HEAD)
            value = attention.v_proj(x).view(batch, length, self.kv_heads, HEAD).transpose(1, 2)
            if hasattr(attention, "q_norm"):
                query = norm(query, attention.q_norm.weight, self.epsilon)
                key = norm(key, attention.k_norm.weight, self.epsilon)
            query, key = (side.transpose(1, 2) for side in (query, key))
            query, key = (side * cos + half_turn(side) * sin for side in (query, key))
            key, value = torch.cat((past[2 * index], key), 2), torch.cat((past[2 * index + 1], value), 2)
            present += [key, value]
            wide = [
                side.unsqueeze(2).expand(-1, -1, self.heads // self.kv_heads, -1, -1).reshape(batch, self.heads, total, HEAD)
                for side in (key, value)
            ]
            weights = torch.softmax(query @ wide[0].transpose(2, 3) / math.sqrt(HEAD) + bias, -1)
            mixed = (weights @ wide[1]).transpose(1, 2).reshape(batch, length, self.heads * HEAD)
            hidden = hidden + attention.o_proj(mixed)
            x = norm(hidden, layer.post_attention_layernorm.weight, self.epsilon)
            mlp = layer.mlp
            hidden = hidden + mlp.down_proj(nn.functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
            if index < self.deep:
                hidden = hidden + deep[index]
        return (self.head(norm(hidden, self.stack.norm.weight, self.epsilon)), *present)


class QwenVision(nn.Module):
    """A Qwen encoder for one image, attending everywhere, in raster order of merged patches. What differs between the
    generations lies in their modules: Qwen2's norms have biases, Qwen2.5's scale by the mean square, Qwen3 adds places
    interpolated from a learnt grid and gives rows of earlier blocks too (DeepStack)."""

    def __init__(self, visual, deep=()):
        super().__init__()
        self.visual, self.merge, self.deep = visual, visual.spatial_merge_size, deep
        self.register_buffer("inverse", visual.rotary_pos_emb.inv_freq.clone())
        self.register_buffer("patches", visual.patch_embed.proj.weight.detach().flatten(1).T.contiguous())

    def places(self, row, column, rows, columns):
        side = self.visual.num_grid_per_side
        table = self.visual.pos_embed

        def ends(index, count):
            at = index.float() * float(side - 1) / torch.clamp(count.float() - 1, min=1.0)
            low = torch.floor(at)
            return low.long(), torch.clamp(low.long() + 1, max=side - 1), (at - low).unsqueeze(1)

        (top, bottom, down), (left, right, across) = ends(row, rows), ends(column, columns)
        upper = table(top * side + left) * (1 - across) + table(top * side + right) * across
        lower = table(bottom * side + left) * (1 - across) + table(bottom * side + right) * across
        return upper * (1 - down) + lower * down

    def merged(self, merger, x):
        if hasattr(merger, "mlp"):
            return merger.mlp(merger.ln_q(x).reshape(1, -1, merger.hidden_size))
        if merger.use_postshuffle_norm:
            x = merger.norm(x.reshape(1, -1, merger.hidden_size))
        else:
            x = merger.norm(x).reshape(1, -1, merger.hidden_size)
        return merger.linear_fc2(merger.act_fn(merger.linear_fc1(x)))

    def forward(self, pixel_values, grid_thw):
        rows, columns = grid_thw[0, 1], grid_thw[0, 2]
        index = torch.arange(pixel_values.shape[0])
        block, inner = index // self.merge**2, index % self.merge**2
        across = columns // self.merge
        row = (block // across) * self.merge + inner // self.merge
        column = (block % across) * self.merge + inner % self.merge
        # A leading side of one: of products of two sides with a sum the exporter makes one operator, which 4-bit files leave.
        x = pixel_values.unsqueeze(0) @ self.patches
        if self.visual.patch_embed.proj.bias is not None:
            x = x + self.visual.patch_embed.proj.bias
        if hasattr(self.visual, "pos_embed"):
            x = x + self.places(row, column, rows, columns)
        angles = torch.cat((row.float().unsqueeze(1) * self.inverse, column.float().unsqueeze(1) * self.inverse), 1)
        angles = torch.cat((angles, angles), 1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        outputs = []
        for number, block in enumerate(self.visual.blocks):
            attention = block.attn
            y = attention.qkv(block.norm1(x)).view(-1, 3, attention.num_heads, attention.head_dim)
            query, key, value = y.unbind(1)
            query, key = (side * cos + half_turn(side) * sin for side in (query, key))
            query, key, value = (side.transpose(0, 1) for side in (query, key, value))
            mixed = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(attention.head_dim), -1) @ value
            mixed = mixed.transpose(0, 1).reshape(1, -1, attention.num_heads * attention.head_dim)
            x = x + attention.proj(mixed)
            x = x + block.mlp(block.norm2(x))
            if number in self.deep:
                outputs.append(self.merged(self.visual.deepstack_merger_list[self.deep.index(number)], x).squeeze(0))
        return (self.merged(self.visual.merger, x).squeeze(0), *outputs)


class LlavaVision(nn.Module):
    """The tower's last but one layer without its class token, projected."""

    def __init__(self, model):
        super().__init__()
        self.tower, self.projector = model.model.vision_tower, model.model.multi_modal_projector

    def forward(self, pixel_values):
        states = self.tower(pixel_values, output_hidden_states=True).hidden_states[-2]
        return self.projector(states[:, 1:])


class Embedding(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, input_ids):
        return self.table(input_ids)


def export(module, arguments, path, inputs, outputs, axes):
    path.parent.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        torch.onnx.export(module, arguments, path, input_names=inputs, output_names=outputs, dynamic_axes=axes,
                          opset_version=17, dynamo=False)


def state_names():
    return [(f"past_key_values.{layer}.{side}", f"present.{layer}.{side}")
            for layer in range(LAYERS) for side in ("key", "value")]


def export_decoder(path, decoder):
    sequence = {0: "batch_size", 1: "sequence_length"}
    three = decoder.axis is not None
    positions = torch.arange(2, 5).expand(2, 3)
    arguments = [torch.randn(2, 3, WIDTH), torch.ones(2, 5, dtype=torch.int64),
                 positions.expand(3, 2, 3).clone() if three else positions.clone()]
    inputs, outputs = ["inputs_embeds", "attention_mask", "position_ids"], ["logits"]
    axes = {"inputs_embeds": sequence, "attention_mask": {0: "batch_size", 1: "total"}, "logits": sequence,
            "position_ids": {1: "batch_size", 2: "sequence_length"} if three else sequence}
    for layer in range(decoder.deep):
        arguments.append(torch.randn(2, 3, WIDTH))
        inputs.append(f"deepstack_scattered_{layer}")
        axes[inputs[-1]] = sequence
    for past, present in state_names():
        arguments.append(torch.randn(2, decoder.kv_heads, 2, HEAD))
        inputs.append(past)
        outputs.append(present)
        axes[past], axes[present] = {0: "batch_size", 2: "past"}, {0: "batch_size", 2: "total"}
    export(decoder, tuple(arguments), path, inputs, outputs, axes)


def export_fused(path, decoder):
    """The same decoder with the operators of fused exports: attention, its state and (along one axis) its rotation in one,
    a sum and its norm in one."""
    nodes, weights, values = [], [], helper.make_tensor_value_info
    stack, contrib = decoder.stack, "com.microsoft"
    state, outputs = [], []

    def keep(name, array):
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(operator, inputs, output, domain="", **attributes):
        outputs = output if isinstance(output, list) else [output]
        nodes.append(helper.make_node(operator, inputs, outputs, outputs[0], domain=domain, **attributes))
        return outputs[0]

    def linear(module, x, name):
        y = node("MatMul", [x, keep(f"{name}.weight", module.weight.detach().numpy().T)], f"{name}.product")
        if module.bias is None:
            return y
        return node("Add", [y, keep(f"{name}.bias", module.bias.detach().numpy())], f"{name}.sum")

    def rms(x, module, name):
        weight = keep(f"{name}.weight", module.weight.detach().numpy())
        return node("SimplifiedLayerNormalization", [x, weight], name, axis=-1, epsilon=decoder.epsilon, stash_type=1)

    def rotated(x, heads, module, name):
        shape = keep(f"{name}.split", np.array([0, 0, heads, HEAD], np.int64))
        x = node("Reshape", [x, shape], f"{name}.heads")
        if module is not None:
            x = rms(x, module, f"{name}.norm")
        node("Split", [x], [f"{name}.left", f"{name}.right"], axis=-1)
        node("Neg", [f"{name}.right"], f"{name}.negative")
        turned = node("Concat", [f"{name}.negative", f"{name}.left"], f"{name}.turned", axis=-1)
        x = node("Add", [node("Mul", [x, "cos"], f"{name}.x"), node("Mul", [turned, "sin"], f"{name}.y")], f"{name}.xy")
        return node("Reshape", [x, keep(f"{name}.join", np.array([0, 0, heads * HEAD], np.int64))], f"{name}.rotated")

    keep("one", np.array([1], np.int64))
    keep("third", np.array([3], np.int64))
    keep("second", np.array([2], np.int64))
    keep("zero", np.array([0], np.int64))
    node("ReduceSum", ["attention_mask", "one"], "seen", keepdims=0)
    node("Cast", [node("Sub", ["seen", "one"], "last")], "last32", to=TensorProto.INT32)
    node("Shape", ["attention_mask"], "mask_shape")
    node("Gather", ["mask_shape", keep("place", np.array(1, np.int64))], "total64", axis=0)
    node("Cast", ["total64"], "total", to=TensorProto.INT32)
    shared = ["last32", "total"]
    inverse = decoder.inverse.numpy()
    inputs = [values("inputs_embeds", TensorProto.FLOAT, ["batch_size", "sequence_length", WIDTH]),
              values("attention_mask", TensorProto.INT64, ["batch_size", "total"])]
    if decoder.axis is None:
        angles = np.outer(np.arange(stack.config.max_position_embeddings), inverse)
        shared += [keep("cos", np.cos(angles).astype(np.float32)), keep("sin", np.sin(angles).astype(np.float32))]
    else:
        inputs.append(values("position_ids", TensorProto.INT64, [3, "batch_size", "sequence_length"]))
        node("Cast", ["position_ids"], "positions", to=TensorProto.FLOAT)
        node("Unsqueeze", ["positions", "third"], "positions4")
        node("Mul", ["positions4", keep("inverse", inverse)], "angles3")
        node("Mul", ["angles3", keep("axis", decoder.axis.numpy()[:, None, None, :])], "angles_own")
        node("ReduceSum", ["angles_own", "zero"], "angles_half", keepdims=0)
        node("Concat", ["angles_half", "angles_half"], "angles_flat", axis=-1)
        node("Unsqueeze", ["angles_flat", "second"], "angles")
        node("Cos", ["angles"], "cos")
        node("Sin", ["angles"], "sin")
    for layer in range(decoder.deep):
        inputs.append(values(f"deepstack_scattered_{layer}", TensorProto.FLOAT, ["batch_size", "sequence_length", WIDTH]))
    hidden, x = "inputs_embeds", None
    for number, layer in enumerate(stack.layers):
        name, attention, mlp = f"layers.{number}", layer.self_attn, layer.mlp
        if x is None:
            x = rms(hidden, layer.input_layernorm, f"{name}.norm")
        sides = [linear(getattr(attention, f"{side}_proj"), x, f"{name}.{side}") for side in "qkv"]
        if decoder.axis is not None:
            for index, (side, heads) in enumerate((("q", decoder.heads), ("k", decoder.kv_heads))):
                own = getattr(attention, f"{side}_norm", None)
                sides[index] = rotated(sides[index], heads, own, f"{name}.{side}")
        (past_key, present_key), (past_value, present_value) = state_names()[2 * number : 2 * number + 2]
        attended = node("GroupQueryAttention", [*sides, past_key, past_value, *shared],
                        [f"{name}.attended", present_key, present_value], contrib, num_heads=decoder.heads,
                        kv_num_heads=decoder.kv_heads, do_rotary=int(decoder.axis is None))
        for past, present in ((past_key, present_key), (past_value, present_value)):
            state.append(values(past, TensorProto.FLOAT, ["batch_size", decoder.kv_heads, "past", HEAD]))
            outputs.append(values(present, TensorProto.FLOAT, ["batch_size", decoder.kv_heads, "total", HEAD]))
        mixed = linear(attention.o_proj, attended, f"{name}.o")
        weight = keep(f"{name}.after.weight", layer.post_attention_layernorm.weight.detach().numpy())
        x = node("SkipSimplifiedLayerNormalization", [mixed, hidden, weight], [f"{name}.after", "", "", f"{name}.sum"],
                 contrib, epsilon=decoder.epsilon)
        gate, up = linear(mlp.gate_proj, x, f"{name}.gate"), linear(mlp.up_proj, x, f"{name}.up")
        gate = node("Mul", [gate, node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.silu")
        down = linear(mlp.down_proj, node("Mul", [gate, up], f"{name}.gated"), f"{name}.down")
        if number < decoder.deep:
            down = node("Add", [down, f"deepstack_scattered_{number}"], f"{name}.deep")
        following = stack.layers[number + 1].input_layernorm if number + 1 < len(stack.layers) else stack.norm
        weight = keep(f"{name}.next.weight", following.weight.detach().numpy())
        hidden = f"{name}.hidden"
        x = node("SkipSimplifiedLayerNormalization", [down, f"{name}.sum", weight], [f"{name}.next", "", "", hidden],
                 contrib, epsilon=decoder.epsilon)
    if decoder.axis is None:
        inputs.append(values("num_logits_to_keep", TensorProto.INT64, []))
        node("Reshape", [node("Neg", ["num_logits_to_keep"], "from_end"), "one"], "from")
        x = node("Slice", [x, "from", keep("end", np.array([2**31], np.int64)), "one"], "kept")
    logits = node("MatMul", [x, keep("head.weight", decoder.head.weight.detach().numpy().T)], "logits")
    size = decoder.head.weight.shape[0]
    graph = helper.make_graph(nodes, "decoder", inputs + state,
                              [values(logits, TensorProto.FLOAT, ["batch_size", "rows", size])] + outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(contrib, 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def halve(path):
    """The sibling in half precision. A decoder's state is halved too, what it takes and answers otherwise is not."""
    model = onnx.load(path)
    keep = [value.name for value in [*model.graph.input, *model.graph.output]
            if not value.name.startswith(("past", "present"))]
    half = convert_float_to_float16(model, keep_io_types=keep, disable_shape_infer=True)
    onnx.save(half, sibling(path, "_fp16"))


def quarter(path):
    """The sibling with 4-bit weights in symmetric blocks of 32. Products are in full precision; SmolVLM's file is of the other
    kind, which rounds activations too. Gives what each weight that was rounded stands for, by what it was."""
    model = onnx.load(path)
    whole = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    products = {node.name: node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    maker = MatMulNBitsQuantizer(model, bits=4, block_size=32, is_symmetric=True, accuracy_level=0)
    maker.process()
    made = maker.model.model
    onnx.save(made, sibling(path, "_q4"))
    parts = {weight.name: numpy_helper.to_array(weight) for weight in made.graph.initializer}
    stands_for = []
    for node in (node for node in made.graph.node if node.op_type == "MatMulNBits"):
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        depth, width, block = attributes["K"], attributes["N"], attributes["block_size"]
        packed, scales = parts[node.input[1]].reshape(width, -1, block // 2), parts[node.input[2]].reshape(width, -1, 1)
        nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(width, -1, block).astype(np.float32)
        rounded = ((nibbles - 8) * scales).reshape(width, -1)[:, :depth]
        was = whole[products[node.name.removesuffix("_Q4")]]
        assert np.abs(was.T - rounded).max() < np.abs(was).max() / 6, "the rounding is another one"
        stands_for.append((was.T, rounded))
    return stands_for


def sibling(path, suffix):
    return path.with_name(path.stem + suffix + path.suffix)


def borrow(path, lender):
    """Weights that another file has are declared to lie there: the tests lay that file beside this one, under the name that
    weights outside a model go by."""
    model, whole = onnx.load(path), lender.read_bytes()
    for weight in model.graph.initializer:
        at = whole.find(weight.raw_data) if len(weight.raw_data) >= 512 else -1
        if at >= 0:
            entries = {"location": f"{path.name}_data", "offset": str(at), "length": str(len(weight.raw_data))}
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                weight.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


class Rounded:
    """The model with other weights in the place of its own, for as long as this is entered."""

    def __init__(self, model, stands_for):
        self.model, self.stands_for, self.own = model, stands_for, []

    def __enter__(self):
        missing = len(self.stands_for)
        with torch.no_grad():
            for weights in self.model.parameters():
                flat = weights.flatten(1).numpy() if weights.ndim > 1 else None
                for was, rounded in self.stands_for:
                    if flat is not None and flat.shape == was.shape and (flat == was).all():
                        self.own.append((weights, weights.clone()))
                        weights.copy_(torch.from_numpy(rounded.copy()).view_as(weights))
                        missing -= 1
                        break
        assert missing == 0, f"{missing} weights are nowhere in the model"

    def __exit__(self, *_):
        with torch.no_grad():
            for weights, own in self.own:
                weights.copy_(own)


def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // (width - 1), y * 255 // (height - 1), (x * 7 + y * 13) % 256], -1)
    pixels[height // 4 : height // 2, width // 3 : width // 2] = (250, 4, 130)
    return Image.fromarray(pixels.astype(np.uint8))


def save(folder, model_tokenizer, processor, config, architecture, model_type, stops):
    processor.save_pretrained(folder)
    model_tokenizer.save_pretrained(folder)
    for spare in ("special_tokens_map.json", "processor_config.json"):
        (folder / spare).unlink(missing_ok=True)
    settings = config.to_dict()
    text = settings["text_config"]
    keep = {"architectures": [architecture], "model_type": model_type,
            "image_token_index" if model_type == "llava" else "image_token_id": config.image_token_id,
            "text_config": {"max_position_embeddings": text["max_position_embeddings"], "model_type": text["model_type"]}}
    if "spatial_merge_size" in settings["vision_config"]:
        keep["vision_config"] = {"spatial_merge_size": settings["vision_config"]["spatial_merge_size"]}
    (folder / "config.json").write_text(json.dumps(keep, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}) + "\n")


class Asked:
    """One question about one image, as the model reads it."""

    def __init__(self, name, words, processor, model, three_axes, feed, expand):
        self.name, self.three_axes, self.feed = name, three_axes, feed
        self.pixels = processor(images=[Image.open(name)], return_tensors="pt")
        content = [{"type": "image"}, {"type": "text", "text": ASK}]
        rule = RULE if three_axes else [{"type": "text", "text": RULE}]
        messages = [{"role": "system", "content": rule}, {"role": "user", "content": content}]
        prompt = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        self.ids = words(expand(prompt, self.pixels), return_tensors="pt", add_special_tokens=not three_axes).input_ids
        self.mask = torch.ones_like(self.ids)
        if three_axes:
            self.positions, moved = model.model.get_rope_index(self.ids, self.pixels["image_grid_thw"], None,
                                                               attention_mask=self.mask)
            self.moved = int(moved)
        else:
            self.positions, self.moved = torch.arange(self.ids.shape[1])[None], 0
        self.answers = {word: words(f" {word}", add_special_tokens=False).input_ids for word in ("yes", "no")}
        assert all(len(numbers) == 1 for numbers in self.answers.values()), self.answers

    def golden(self, row, written, **more):
        row = row.astype(np.float64)
        logs = row - np.log(np.exp(row).sum())
        for word, numbers in self.answers.items():
            more |= {f"{word}_ids": numbers, f"log_p_{word}": round(float(logs[numbers[0]]), 7)}
        return {"images": [pathlib.Path(self.name).name], "input_ids": self.ids[0].tolist(),
                "last_logits": [round(float(value), 6) for value in row], "greedy": written, **more}

    def by_transformers(self, model, stops):
        with torch.no_grad():
            logits = model(input_ids=self.ids, attention_mask=self.mask, **self.pixels).logits
            written = model.generate(input_ids=self.ids, attention_mask=self.mask, **self.pixels, max_new_tokens=STEPS,
                                     do_sample=False, eos_token_id=stops)
        places = {"position_ids": self.positions[:, 0].tolist()} if self.three_axes else {}
        return self.golden(logits[0, -1].numpy(), written[0, self.ids.shape[1] :].tolist(), **places)

    def by_onnxruntime(self, folder, suffix, image_token, stops, data=None):
        """The prompt in one piece, then token after token. `data`: where a file that borrows its weights finds them."""
        sessions = {}
        for name in ("vision_encoder", "embed_tokens", "decoder_model_merged"):
            own = "" if name == "embed_tokens" and suffix == "_q4" else suffix
            path = folder / f"{name}{own}.onnx"
            beside = data / path.name if data else None
            if beside and beside != path:
                shutil.copy(beside, f"{path}_data")
            sessions[name] = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            pathlib.Path(f"{path}_data").unlink(missing_ok=True)
        encoder, embedder, decoder = sessions.values()
        rows, *deep = encoder.run(None, {self.feed.get(name, name): value.numpy() for name, value in self.pixels.items()})
        embed = lambda ids: embedder.run(None, {"input_ids": ids})[0].astype(np.float32)
        embeddings, here = embed(self.ids.numpy()), self.ids.numpy() == image_token
        embeddings[here] = rows.reshape(-1, WIDTH)
        layers = []
        for layer in deep:
            layers.append(np.zeros_like(embeddings))
            layers[-1][here] = layer
        kinds = {value.name: value.type for value in decoder.get_inputs()}
        kv_heads = decoder.get_inputs()[-1].shape[1]
        names = state_names()
        kind = np.float16 if kinds[names[0][0]] == "tensor(float16)" else np.float32
        outputs = ["logits"] + [present for _, present in names]

        def step(embeddings, total, positions, past, layers):
            feed = {"inputs_embeds": embeddings, "attention_mask": np.ones((1, total), np.int64),
                    "position_ids": positions, "num_logits_to_keep": np.array(1, np.int64)}
            feed |= {f"deepstack_scattered_{number}": layer for number, layer in enumerate(layers)}
            feed |= dict(zip([past for past, _ in names], past))
            answer = decoder.run(outputs, {name: value for name, value in feed.items() if name in kinds})
            return answer[0][0, -1].astype(np.float32), answer[1:]

        total = self.ids.shape[1]
        past = [np.zeros((1, kv_heads, 0, HEAD), kind)] * len(names)
        row, past = step(embeddings, total, self.positions.numpy(), past, layers)
        first, written, gap = row, [], math.inf
        for number in range(STEPS):
            token = int(row.argmax())
            two = np.sort(row)[-2:]
            gap = min(gap, two[1] - two[0])
            written.append(token)
            if token in stops:
                break
            total += 1
            place = np.full((3, 1, 1) if self.three_axes else (1, 1), self.ids.shape[1] + number + self.moved)
            one = embed(np.array([[token]]))
            row, past = step(one, total, place, past, [np.zeros_like(one)] * len(layers))
        # Two logits that are each as near to these as the tests ask for may then not change places (in half precision
        # another processor's may be 2e-3 off).
        print(f"{suffix or 'fp32'}: the nearest tie in {len(written)} tokens: {gap:.1e}")
        far = gap > (4e-3 if suffix == "_fp16" else 2e-4)
        assert far, f"the two most likely tokens are only {gap} apart: take another seed"
        return self.golden(first, written)


def write(folder, model, decoders, encoders, table, asked, stops, without):
    """All files of a replica and its golden values. `decoders`, `encoders`: by folder, the first of which lends its weights
    to the others; `without(folder)`: a context in which the model is what that folder's files are."""
    shutil.rmtree(folder / "onnx", ignore_errors=True)
    sequence = {0: "batch_size", 1: "sequence_length"}
    embed = folder / "onnx" / "embed_tokens.onnx"
    export(Embedding(table), (torch.ones(2, 3, dtype=torch.int64),), embed, ["input_ids"], ["inputs_embeds"],
           {"input_ids": sequence, "inputs_embeds": sequence})
    halve(embed)
    golden, variants = {}, {"fp16": {}, "q4": {}}
    lender = folder / "onnx"
    for name, decoder in decoders.items():
        for stale in () if name == "onnx" else (folder / name,):
            shutil.rmtree(stale, ignore_errors=True)
        stands_for = []
        for path, make in ((folder / name / "vision_encoder.onnx", encoders[name]),
                           (folder / name / "decoder_model_merged.onnx", lambda path: export_decoder(path, decoder))):
            make(path)
            halve(path)
            stands_for += quarter(path)
        fused = folder / name.replace("onnx", "onnx_fused") / "decoder_model_merged.onnx"
        export_fused(fused, decoder)
        quarter(fused)
        for path in ([] if name == "onnx" else sorted((folder / name).glob("*.onnx"))) + [fused, sibling(fused, "_q4")]:
            borrow(path, lender / path.name)
        if name != "onnx":
            for path in embed, sibling(embed, "_fp16"):
                shutil.copy(path, folder / name)
        with without(name):
            for one in asked:
                case = pathlib.Path(one.name).stem if len(decoders) == 1 else f"{name}/{pathlib.Path(one.name).stem}"
                token = model.config.image_token_id
                golden[case] = one.by_transformers(model, stops)
                again = one.by_onnxruntime(folder / name, "", token, stops, lender)
                report(case, "fp32", golden[case], again)
                with Rounded(model, stands_for):
                    variants["q4"][case] = one.by_transformers(model, stops)
                report(case, "q4", variants["q4"][case], one.by_onnxruntime(folder / name, "_q4", token, stops, lender))
                variants["fp16"][case] = one.by_onnxruntime(folder / name, "_fp16", token, stops, lender)
                report(case, "fp16 (fp32 beside it)", golden[case], variants["fp16"][case], False)
        if name != "onnx":
            for path in (folder / name).glob("embed_tokens*"):
                path.unlink()
    for case in (case for cases in variants.values() for case in cases.values()):
        case.pop("position_ids", None)
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    (folder / "variants.json").write_text(json.dumps(variants, separators=(",", ":")) + "\n")


def report(case, kind, golden, other, holds=True):
    apart = np.abs(np.array(golden["last_logits"]) - np.array(other["last_logits"])).max()
    same = golden["greedy"] == other["greedy"]
    print(f"{case} {kind}: {apart:.1e} from onnxruntime, {'the same' if same else 'other'} tokens")
    assert not holds or (apart < 5e-5 and same), "the files are not the model"


class Whole:
    """The model as it is."""

    def __init__(self, _):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def qwen(name, model_type, config_type, model_type_class, seed, heads, text, vision, interleaved=False, deep=(),
         grid="image_grid_thw", processing=None):
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer(QWEN_MARKS), eos_token="<|im_end|>",
                                    pad_token="<|endoftext|>")
    words.chat_template = QWEN_TEMPLATE
    number = words.convert_tokens_to_ids
    processor = Qwen2VLImageProcessor(patch_size=8, temporal_patch_size=2, merge_size=2, min_pixels=32 * 32,
                                      max_pixels=112 * 112, **(processing or {}))
    config = config_type(
        text_config=dict(vocab_size=len(words), hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
                         num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=HEAD, rms_norm_eps=1e-6,
                         rope_theta=1e6, max_position_embeddings=4096, tie_word_embeddings=False, **text),
        vision_config=dict(depth=2, in_channels=3, patch_size=8, spatial_merge_size=2, temporal_patch_size=2, num_heads=2,
                           **vision),
        image_token_id=number("<|image_pad|>"), video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"), tie_word_embeddings=False)
    model = model_type_class._from_config(config, attn_implementation="eager").eval()
    randomise(model, seed)
    stops = [number("<|im_end|>"), number("<|endoftext|>")]
    save(folder, words, processor, config, model_type_class.__name__, model_type, stops)
    visual, stack = model.model.visual, model.model.language_model
    patches = torch.randn(24, 3 * 2 * 8 * 8)

    def encoder(layers):
        outputs = ["image_features"] + [f"deepstack_features_{layer}" for layer in range(len(layers))]
        sides = {"pixel_values": {0: "patches"}, grid: {0: "images"}, **{output: {0: "tokens"} for output in outputs}}
        return lambda path: export(QwenVision(visual, layers), (patches, torch.tensor([[1, 4, 6]])), path,
                                   ["pixel_values", grid], outputs, sides)

    folders = {"onnx": ()} | ({"onnx_deepstack": deep} if deep else {})
    axis = axes(interleaved)
    decoders = {name: Decoder(stack, model.lm_head, 1e-6, axis, len(layers)) for name, layers in folders.items()}
    expand = lambda prompt, pixels: prompt.replace(
        "<|image_pad|>", "<|image_pad|>" * (int(pixels["image_grid_thw"].prod()) // 4))
    asked = []
    for case, size in {"wide": (200, 120), "tall": (90, 150)}.items():
        picture(*size).save(folder / f"{case}.png")
        asked.append(Asked(str(folder / f"{case}.png"), words, processor, model, True, {"image_grid_thw": grid}, expand))

    class Without(Whole):
        """Qwen3-VL as exports without DeepStack rows are: nothing is added to the first layers."""

        def __init__(self, name):
            self.drops = hasattr(stack, "_deepstack_process") and not folders[name]

        def __enter__(self):
            if self.drops:
                stack._deepstack_process = lambda hidden, *_: hidden

        def __exit__(self, *_):
            if self.drops:
                del stack._deepstack_process

    write(folder, model, decoders, {name: encoder(layers) for name, layers in folders.items()}, stack.embed_tokens, asked,
          stops, Without)


def qwens():
    rotary = {"rope_scaling": {"type": "mrope", "mrope_section": SECTIONS}, "use_sliding_window": False}
    qwen("tiny-qwen2vl", "qwen2_vl", Qwen2VLConfig, Qwen2VLForConditionalGeneration, 20, 2, rotary,
         dict(embed_dim=16, hidden_size=WIDTH, mlp_ratio=2), grid="grid_thw")
    qwen("tiny-qwen25vl", "qwen2_5_vl", Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, 24, 2, rotary,
         dict(hidden_size=16, intermediate_size=32, out_hidden_size=WIDTH, window_size=64, fullatt_block_indexes=[0, 1]))
    interleaved = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": SECTIONS}
    qwen("small-qwen3vl", "qwen3_vl", Qwen3VLConfig, Qwen3VLForConditionalGeneration, 23, 4, {"rope_scaling": interleaved},
         dict(hidden_size=16, intermediate_size=32, out_hidden_size=WIDTH, num_position_embeddings=64,
              deepstack_visual_indexes=[0, 1], hidden_act="gelu_pytorch_tanh"),
         interleaved=True, deep=(0, 1), processing=dict(image_mean=[0.5] * 3, image_std=[0.5] * 3))


def llava():
    folder = ROOT / "tiny-llava"
    folder.mkdir(parents=True, exist_ok=True)
    raw = tokenizer(["<unk>", "<s>", "</s>", "<image>", "<pad>"], bos="<s>")
    words = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                    unk_token="<unk>")
    words.chat_template = LLAVA_TEMPLATE
    processor = CLIPImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48})
    config = LlavaConfig(
        vision_config=dict(model_type="clip_vision_model", hidden_size=16, intermediate_size=32, num_hidden_layers=3,
                           num_attention_heads=2, image_size=48, patch_size=8, projection_dim=16),
        text_config=dict(model_type="llama", vocab_size=len(words), hidden_size=WIDTH, intermediate_size=INNER,
                         num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
                         head_dim=HEAD, rms_norm_eps=1e-5, max_position_embeddings=640, tie_word_embeddings=False),
        image_token_id=words.convert_tokens_to_ids("<image>"), vision_feature_layer=-2,
        vision_feature_select_strategy="default", image_seq_length=36)
    config._attn_implementation = "eager"
    model = LlavaForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    randomise(model, 22)
    stops = [words.eos_token_id]
    save(folder, words, processor, config, "LlavaForConditionalGeneration", "llava", stops)
    stack = model.model.language_model
    encoder = lambda path: export(LlavaVision(model), (torch.randn(1, 3, 48, 48),), path, ["pixel_values"],
                                  ["image_features"], {"pixel_values": {0: "batch_size"}, "image_features": {0: "batch_size"}})
    expand = lambda prompt, _: prompt.replace("<image>", "<image>" * 36)
    asked = []
    for case, size in {"wide": (120, 80), "tall": (70, 131)}.items():
        picture(*size).save(folder / f"{case}.png")
        asked.append(Asked(str(folder / f"{case}.png"), words, processor, model, False, {}, expand))
    write(folder, model, {"onnx": Decoder(stack, model.lm_head, 1e-5)}, {"onnx": encoder}, stack.embed_tokens, asked, stops,
          Whole)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    torch.manual_seed(0)
    qwens()
    llava()
