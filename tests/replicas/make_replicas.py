"""Makes the tiny Qwen2.5-VL and LLaVA replicas: random weights from a fixed seed, exported in the public three-file
layout, with golden values from transformers' own models on the same weights.

Usage: python make_replicas.py (writes tests/data/replicas/tiny-qwen25vl and tiny-llava)
Needs numpy, pillow==12.0.0, onnx, onnxruntime==1.31.1, torch and transformers==4.57.6.
"""

import json
import math
import pathlib

import numpy as np
import torch
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
    Qwen2VLImageProcessor,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent / "data" / "replicas"
HEADS, KV_HEADS, HEAD, WIDTH, LAYERS = 4, 2, 16, 64, 2
LOWEST = torch.finfo(torch.float32).min
RULE = "Rule 2: never hand a sharp object to a child."
ASK = "Instruction: put the bowl on the cart. Answer yes or no."
TEXTS = [
    "You guard a robot. Judge whether its plan may run. Verdict: yes. Verdict: no.",
    RULE,
    ASK,
    "May the robot run this plan in the scene of the image? Say what could go wrong, then answer yes or no.",
    "Plan: take the cup, carry it to the table, put it down. It may be hot; maybe a child is near, or perhaps not.",
]


def tokenizer(specials, bos=None):
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, min_frequency=1, show_progress=False, initial_alphabet=alphabet)
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


class Decoder(nn.Module):
    """A decoder with its keys and values as inputs and outputs. `sections`: how many frequencies each axis has."""

    def __init__(self, stack, head, inverse, epsilon, sections=None):
        super().__init__()
        self.stack, self.head, self.epsilon, self.sections = stack, head, epsilon, sections
        self.register_buffer("inverse", inverse.clone().float())
        if sections:
            axis = torch.repeat_interleave(torch.arange(3), torch.tensor(sections))
            self.register_buffer("axis", nn.functional.one_hot(axis, 3).T.float())

    def forward(self, inputs_embeds, attention_mask, position_ids, *past):
        batch, length = inputs_embeds.shape[:2]
        start, total = past[0].shape[2], attention_mask.shape[1]
        queries = torch.arange(length).unsqueeze(1) + start
        sees = (torch.arange(total).unsqueeze(0) <= queries).unsqueeze(0) & (attention_mask > 0).unsqueeze(1)
        bias = torch.where(sees, 0.0, LOWEST).unsqueeze(1)
        angles = position_ids.unsqueeze(-1).float() * self.inverse
        if self.sections:
            angles = (angles * self.axis[:, None, None, :]).sum(0)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        hidden, present = inputs_embeds, []
        for index, layer in enumerate(self.stack.layers):
            attention = layer.self_attn
            x = norm(hidden, layer.input_layernorm.weight, self.epsilon)
            query = attention.q_proj(x).view(batch, length, HEADS, HEAD).transpose(1, 2)
            key = attention.k_proj(x).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
            value = attention.v_proj(x).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
            query, key = (side * cos + half_turn(side) * sin for side in (query, key))
            key, value = torch.cat((past[2 * index], key), 2), torch.cat((past[2 * index + 1], value), 2)
            present += [key, value]
            wide = [
                side.unsqueeze(2).expand(-1, -1, HEADS // KV_HEADS, -1, -1).reshape(batch, HEADS, total, HEAD)
                for side in (key, value)
            ]
            weights = torch.softmax(query @ wide[0].transpose(2, 3) / math.sqrt(HEAD) + bias, -1)
            mixed = (weights @ wide[1]).transpose(1, 2).reshape(batch, length, HEADS * HEAD)
            hidden = hidden + attention.o_proj(mixed)
            x = norm(hidden, layer.post_attention_layernorm.weight, self.epsilon)
            mlp = layer.mlp
            hidden = hidden + mlp.down_proj(nn.functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        return (self.head(norm(hidden, self.stack.norm.weight, self.epsilon)), *present)


class QwenVision(nn.Module):
    """Qwen2.5-VL's encoder for one image with full attention in every block, in raster order of merged patches."""

    def __init__(self, visual):
        super().__init__()
        self.visual, self.merge = visual, visual.spatial_merge_size
        self.register_buffer("inverse", visual.rotary_pos_emb.inv_freq.clone())

    def forward(self, pixel_values, image_grid_thw):
        columns = image_grid_thw[0, 2]
        index = torch.arange(pixel_values.shape[0])
        block, inner = index // self.merge**2, index % self.merge**2
        across = columns // self.merge
        row = (block // across) * self.merge + inner // self.merge
        column = (block % across) * self.merge + inner % self.merge
        weights = self.visual.patch_embed.proj.weight.flatten(1)
        x = nn.functional.linear(pixel_values, weights)
        angles = torch.cat((row.float().unsqueeze(1) * self.inverse, column.float().unsqueeze(1) * self.inverse), 1)
        angles = torch.cat((angles, angles), 1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        for block in self.visual.blocks:
            attention = block.attn
            y = attention.qkv(block.norm1(x)).view(-1, 3, attention.num_heads, attention.head_dim)
            query, key, value = y.unbind(1)
            query, key = (side * cos + half_turn(side) * sin for side in (query, key))
            query, key, value = (side.transpose(0, 1) for side in (query, key, value))
            mixed = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(attention.head_dim), -1) @ value
            x = x + attention.proj(mixed.transpose(0, 1).reshape(-1, attention.num_heads * attention.head_dim))
            x = x + block.mlp(block.norm2(x))
        return self.visual.merger(x)


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
    with torch.no_grad():
        torch.onnx.export(module, arguments, path, input_names=inputs, output_names=outputs, dynamic_axes=axes,
                          opset_version=17, dynamo=False)


def export_text(folder, table, decoder, three_axes):
    sequence = {0: "batch_size", 1: "sequence_length"}
    export(Embedding(table), (torch.ones(2, 3, dtype=torch.int64),), folder / "onnx/embed_tokens.onnx", ["input_ids"],
           ["inputs_embeds"], {"input_ids": sequence, "inputs_embeds": sequence})
    positions = torch.arange(2, 5).expand(2, 3)
    arguments = [torch.randn(2, 3, WIDTH), torch.ones(2, 5, dtype=torch.int64),
                 positions.expand(3, 2, 3).clone() if three_axes else positions.clone()]
    inputs, outputs = ["inputs_embeds", "attention_mask", "position_ids"], ["logits"]
    axes = {"inputs_embeds": sequence, "attention_mask": {0: "batch_size", 1: "total"}, "logits": sequence,
            "position_ids": {1: "batch_size", 2: "sequence_length"} if three_axes else sequence}
    for layer in range(LAYERS):
        for side in ("key", "value"):
            arguments.append(torch.randn(2, KV_HEADS, 2, HEAD))
            inputs.append(f"past_key_values.{layer}.{side}")
            outputs.append(f"present.{layer}.{side}")
            axes[inputs[-1]], axes[outputs[-1]] = {0: "batch_size", 2: "past"}, {0: "batch_size", 2: "total"}
    export(decoder, tuple(arguments), folder / "onnx/decoder_model_merged.onnx", inputs, outputs, axes)


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


def case(ids, logits, written, **more):
    row = logits[0, -1].double().numpy()
    return {"input_ids": ids[0].tolist(), "last_logits": [round(float(value), 6) for value in row], "greedy": written,
            **more}


def qwen25():
    folder = ROOT / "tiny-qwen25vl"
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
             "<|video_pad|>"]
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer(marks), eos_token="<|im_end|>",
                                    pad_token="<|endoftext|>")
    # Like the family's own: a default system message, and images wherever they stand in the content.
    words.chat_template = (
        "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
        "Be of help.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
        "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
        "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' or 'image' in part %}"
        "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}"
        "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    number = words.convert_tokens_to_ids
    processor = Qwen2VLImageProcessor(patch_size=14, temporal_patch_size=2, merge_size=2, min_pixels=56 * 56,
                                      max_pixels=168 * 168)
    config = Qwen2_5_VLConfig(
        text_config=dict(vocab_size=len(words), hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=LAYERS,
                         num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, rms_norm_eps=1e-6,
                         rope_theta=1e6, rope_scaling={"type": "mrope", "mrope_section": [4, 2, 2]},
                         max_position_embeddings=4096, tie_word_embeddings=False, use_sliding_window=False),
        vision_config=dict(depth=2, hidden_size=32, intermediate_size=64, num_heads=2, in_channels=3, patch_size=14,
                           spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=WIDTH, window_size=112,
                           fullatt_block_indexes=[0, 1]),
        image_token_id=number("<|image_pad|>"), video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"), tie_word_embeddings=False)
    model = Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    randomise(model, 21)
    text = model.model.language_model
    patches = torch.randn(24, 3 * 2 * 14 * 14)
    export(QwenVision(model.model.visual), (patches, torch.tensor([[1, 4, 6]])), folder / "onnx/vision_encoder.onnx",
           ["pixel_values", "image_grid_thw"], ["image_features"],
           {"pixel_values": {0: "patches"}, "image_grid_thw": {0: "images"}, "image_features": {0: "tokens"}})
    decoder = Decoder(text, model.lm_head, text.rotary_emb.inv_freq, 1e-6, sections=[4, 2, 2])
    export_text(folder, text.embed_tokens, decoder, three_axes=True)
    stops = [number("<|im_end|>"), number("<|endoftext|>")]
    save(folder, words, processor, config, "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", stops)
    golden = {}
    for name, size in {"wide": (200, 120), "tall": (90, 150)}.items():
        seen = picture(*size)
        seen.save(folder / f"{name}.png")
        pixels = processor(images=[seen], return_tensors="pt")
        grid = pixels["image_grid_thw"]
        messages = [{"role": "system", "content": RULE},
                    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ASK}]}]
        prompt = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt = prompt.replace("<|image_pad|>", "<|image_pad|>" * (int(grid.prod()) // 4))
        ids = words(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        mask = torch.ones_like(ids)
        positions, _ = model.model.get_rope_index(ids, grid, None, attention_mask=mask)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask, **pixels).logits
            written = model.generate(input_ids=ids, attention_mask=mask, **pixels, max_new_tokens=24, do_sample=False,
                                     eos_token_id=stops)
        golden[name] = case(ids, logits, written[0, ids.shape[1]:].tolist(), images=[f"{name}.png"],
                            position_ids=positions[:, 0].tolist())
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def llava():
    folder = ROOT / "tiny-llava"
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    raw = tokenizer(["<unk>", "<s>", "</s>", "<image>", "<pad>"], bos="<s>")
    words = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                    unk_token="<unk>")
    # Like the layout's first models: images before text, and a training mark around the assistant's words.
    words.chat_template = (
        "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
        "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
        "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{ part['text'] + ' ' }}{% endgeneration %}"
        "{% else %}{{ part['text'] + ' ' }}{% endif %}{% endfor %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
    )
    processor = CLIPImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48})
    config = LlavaConfig(
        vision_config=dict(model_type="clip_vision_model", hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                           num_attention_heads=2, image_size=48, patch_size=8, projection_dim=32),
        text_config=dict(model_type="llama", vocab_size=len(words), hidden_size=WIDTH, intermediate_size=128,
                         num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                         head_dim=HEAD, rms_norm_eps=1e-5, max_position_embeddings=2048, tie_word_embeddings=False),
        image_token_id=words.convert_tokens_to_ids("<image>"), vision_feature_layer=-2,
        vision_feature_select_strategy="default", image_seq_length=36)
    config._attn_implementation = "eager"
    model = LlavaForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    randomise(model, 22)
    text = model.model.language_model
    export(LlavaVision(model), (torch.randn(1, 3, 48, 48),), folder / "onnx/vision_encoder.onnx", ["pixel_values"],
           ["image_features"], {"pixel_values": {0: "batch_size"}, "image_features": {0: "batch_size"}})
    decoder = Decoder(text, model.lm_head, text.rotary_emb.inv_freq, 1e-5)
    export_text(folder, text.embed_tokens, decoder, three_axes=False)
    stops = [words.eos_token_id]
    save(folder, words, processor, config, "LlavaForConditionalGeneration", "llava", stops)
    golden = {}
    for name, size in {"wide": (120, 80), "tall": (70, 131)}.items():
        seen = picture(*size)
        seen.save(folder / f"{name}.png")
        pixels = processor(images=[seen], return_tensors="pt")
        messages = [{"role": "system", "content": [{"type": "text", "text": RULE}]},
                    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": ASK}]}]
        prompt = words.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = words(prompt.replace("<image>", "<image>" * 36), return_tensors="pt").input_ids
        mask = torch.ones_like(ids)
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask, **pixels).logits
            written = model.generate(input_ids=ids, attention_mask=mask, **pixels, max_new_tokens=24, do_sample=False,
                                     eos_token_id=stops)
        golden[name] = case(ids, logits, written[0, ids.shape[1]:].tolist(), images=[f"{name}.png"])
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    qwen25()
    llava()
