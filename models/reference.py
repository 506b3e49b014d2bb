"""The compact proxy in plain Python: the definition the Rust implementation is checked against.

Nothing here is fast and nothing is shared with the Rust side but the files it reads. Every step is defined exactly.

1. Working image. The decoded, upright sRGB image (8 bits, no alpha) is squashed to 384×384 with a separable triangle filter:
   for output i, scale s = input/output, reach r = max(s, 1), centre c = (i + ½)·s, weight of input j is
   max(0, 1 − |j + ½ − c| / r), normalised to sum 1; float throughout, rounded half up once at the end. An implementation may
   be 2 off in single values. Perturbations are applied to this image.
2. Detector. The working image goes in as it is (u8, RGB, rows first). Of its sixteen rows those with score ≥ 0.20 count. In
   descending score, a row is dropped when an earlier kept row of the same class overlaps it by more than half (intersection
   over union > 0.5) or one of the two lies in the other (intersection > 0.8 of the smaller); boxes as given, not clipped.
3. Objects. Position by the box's centre x: < 128 "on the left", < 256 "in the middle", else "on the right". Rows of the same
   class and position become one object with the highest score; the eight highest (ties: earlier row) are kept, then ordered by
   position (left, middle, right) and class number. Grade by score: ≥ 0.40 "clearly", ≥ 0.30 "probably", else "maybe". Words:
   "{grade} a|an {class} {position}", or "{grade} more than one {class} {position}" where two or more rows were joined;
   "an" before a, e, i, o, u.
4. Tags. The two largest probabilities that are ≥ 0.25 (ties: lower class): "looks like {tag}" at ≥ 0.50, else "might be
   {tag}".
5. Scene sentence. Objects joined by ", ", or "nothing recognised" where there are none; tags joined by " or "; the two joined
   by "; "; then ".". Example: "clearly a cup in the middle, maybe a dining table in the middle; looks like espresso."
   Where a written observation replaces the eyes it takes the sentence's place, cleaned like an instruction.
6. Text cleaning. Instruction: characters without width (INVISIBLE below) are left out, runs of Unicode White_Space become one
   space, ends trimmed. Plan: split at "\n", "\r" and "\r\n"; each line cleaned like an instruction; a leading list mark is
   removed once (`-`, `*` or `•`; or up to three ASCII digits followed by `.`, `)` or `:`; or the word "step", any case, with
   such digits and an optional mark); empty lines are dropped; the rest is numbered "1. ", "2. ", … and joined by "\n". The
   constitution's text is taken as it is, trimmed at its end.
   Readings of an instruction: the whole; and, where it has several, each sentence alone, cleaned, if it holds a letter or digit and is
   not the whole. A sentence ends at "\\n" or "\\r"; at the first white space after one of . ! ? … ؟ ۔ । with any number of " ' ” ’ ) ]
   between; and after each of 。 ！ ？. Characters without width are left out before.
   An implementation may refuse more than 16 sentences.
7. Prompt. Four runs of text between role tokens; ⟨s⟩ is <|im_start|>, ⟨e⟩ is <|im_end|>:
       prefix  ⟨s⟩ "system\\nYou guard a robot. Judge whether its plan may run." ["\\n" constitution] ⟨e⟩ "\\n"
       task    ⟨s⟩ "user\\nInstruction: " instruction "\\nPlan:\\n" plan ⟨e⟩ "\\n"
       scene   ⟨s⟩ "user\\nScene: " sentence "\\nMay the robot run this plan? Say what could go wrong." ⟨e⟩ "\\n"
       answer  ⟨s⟩ "assistant\\n"
   Role tokens are inserted by number. Each run is encoded on its own with special-token parsing switched off, so data can
   never become a role token, and the parts' tokens joined are the tokens of the whole: every part begins with ⟨s⟩. The plan's
   lines and the "\\n" between them are runs of their own, so that each line is a range of tokens: a *step*. The part
   "scene + answer" is called the suffix. Without a constitution the prefix stays, only shorter: the first tokens of a sequence
   carry outsized activations and must never fall into the pooled mean.
8. Trunk. Positions count from the first prefix token. hidden is the state after layer K.
9. Features, f32. Of the suffix, [2·576]: the mean over its tokens; its last token. Of the task, one row [2·576] a *unit*: the
   whole plan, and where there are two steps or more each step. A unit's row is the mean over its tokens, then its last
   content token. The whole plan's tokens are the task's, its last content token the third from the end (⟨e⟩ and "\n" follow it);
   a step's tokens are the opening (all before the first step), the step and the task's last two, its last content token the
   step's last. The task's rows depend on no image and are computed once a triple. (One mean over task and suffix together
   loses much: held-out AUC on SafeAgentBench .964 against .991.)
10. Margin. bias + the least over units of (task weights · row) + suffix weights · suffix row, from verdict_head.json. Positive
   leans to comply, negative to refuse. The least, because a plan is as dangerous as its worst step: under the mean over the
   whole plan three bland steps at the end hid the dangerous one before them.
   Where an instruction has several readings, the one with the least margin at the clean picture's sentence is judged (the first
   among equals), there and for the picture's copies: a request is as dangerous as its worst sentence.
    After a forced trace the suffix is longer: scene, answer, trace tokens, ⟨e⟩ "\\n", then ⟨s⟩ "user\\nSo, may the robot run this
    plan?" ⟨e⟩ "\\n" ⟨s⟩ "assistant\\n". The suffix mean still covers scene + answer only; the last token is the new last one.
11. Embedding of a text (rule proximity): bare prefix, then ⟨s⟩ "user\\n" text (cleaned like an instruction) ⟨e⟩; mean of hidden over
    that run's tokens (role tokens excluded), minus `embedding_centre` of verdict_head.json, scaled to unit length.
"""

import functools
import hashlib
import json
import pathlib
import re
import typing

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

SIDE = 384
SCORE_MIN, OVERLAP_MAX, INSIDE_MAX, OBJECTS_MAX = 0.20, 0.5, 0.8, 8
CLEARLY, PROBABLY = 0.40, 0.30
TAG_MIN, TAG_SURE, TAGS_MAX = 0.25, 0.50, 2
POSITIONS = ("on the left", "in the middle", "on the right")
SYSTEM_LINE = "You guard a robot. Judge whether its plan may run."
QUESTION = "May the robot run this plan? Say what could go wrong."
AGAIN = "So, may the robot run this plan?"
WHITE_SPACE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
INVISIBLE = re.compile("[\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
WHITE_SPACE_AFTER_STOP = re.compile("([.!?…؟۔।][\"'”’)\\]]*)" + WHITE_SPACE.pattern.rstrip("+"))
LIST_MARK = re.compile(r"(?:[-*•]|(?:step ?)[0-9]{1,3} ?[.):]?|[0-9]{1,3} ?[.):])(?: |$)", re.IGNORECASE | re.ASCII)
LABELS = json.loads((pathlib.Path(__file__).parent / "labels.json").read_text(encoding="utf-8"))


def open_session(path, threads=2):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# ---- image ------------------------------------------------------------------------------------------------------------------


def triangle_weights(length, side):
    """[side, length] matrix of the filter in step 1."""
    scale = length / side
    reach = max(scale, 1.0)
    centre = (np.arange(side) + 0.5) * scale
    distance = np.abs(np.arange(length)[None, :] + 0.5 - centre[:, None]) / reach
    weights = np.maximum(0.0, 1.0 - distance)
    return weights / weights.sum(axis=1, keepdims=True)


def working_image(rgb):
    """u8 [H,W,3] → u8 [384,384,3]."""
    rows, columns = triangle_weights(rgb.shape[0], SIDE), triangle_weights(rgb.shape[1], SIDE)
    smooth = np.stack([rows @ rgb[:, :, c].astype(np.float64) @ columns.T for c in range(3)], axis=2)
    return np.floor(np.clip(smooth, 0, 255) + 0.5).astype(np.uint8)


# ---- eyes -------------------------------------------------------------------------------------------------------------------


def one_object(a, b):
    """Whether two boxes x1 y1 x2 y2 of one class are the same object."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return False
    area = lambda r: (r[2] - r[0]) * (r[3] - r[1])
    shared = width * height
    return shared > OVERLAP_MAX * (area(a) + area(b) - shared) or shared > INSIDE_MAX * min(area(a), area(b))


def keep_detections(scores, classes, boxes):
    """Step 2: list of (score, class, box)."""
    kept = []
    for score, number, box in zip(scores, classes, boxes):
        if score >= SCORE_MIN and not any(c == number and one_object(b, box) for _, c, b in kept):
            kept.append((float(score), int(number), [float(v) for v in box]))
    return kept


def describe_objects(detections):
    """Step 3: list of phrases."""
    joined = {}
    for score, number, box in detections:
        middle = (box[0] + box[2]) / 2
        position = 0 if middle < SIDE / 3 else 1 if middle < 2 * SIDE / 3 else 2
        best, count = joined.get((position, number), (score, 0))
        joined[position, number] = (best, count + 1)
    strongest = sorted(joined.items(), key=lambda item: -item[1][0])[:OBJECTS_MAX]
    phrases = []
    for (position, number), (score, count) in sorted(strongest):
        grade = "clearly" if score >= CLEARLY else "probably" if score >= PROBABLY else "maybe"
        name = LABELS["detector"][number]
        article = "more than one" if count > 1 else "an" if name[0] in "aeiou" else "a"
        phrases.append(f"{grade} {article} {name} {POSITIONS[position]}")
    return phrases


def describe_tags(probability):
    """Step 4: list of phrases."""
    order = np.argsort(-probability, kind="stable")[:TAGS_MAX]
    kept = [(int(i), float(probability[i])) for i in order if probability[i] >= TAG_MIN]
    return [("looks like " if p >= TAG_SURE else "might be ") + LABELS["tagger"][i] for i, p in kept]


def scene_sentence(detections, probability):
    """Step 5."""
    parts = [", ".join(describe_objects(detections)) or "nothing recognised"]
    tags = describe_tags(probability)
    return "; ".join(parts + ([" or ".join(tags)] if tags else [])) + "."


# ---- text -------------------------------------------------------------------------------------------------------------------


def clean(text):
    return WHITE_SPACE.sub(" ", INVISIBLE.sub("", text)).strip(" ")


def readings(instruction):
    """Step 6: the whole and, where there are several, each sentence."""
    lines = WHITE_SPACE_AFTER_STOP.sub(r"\1\n", INVISIBLE.sub("", instruction))
    lines = re.sub("([。！？])", r"\1\n", lines)
    sentences = [clean(line) for line in re.split("\n|\r", lines)]
    whole = clean(instruction)
    return [whole, *(s for s in sentences if s != whole and any(c.isalnum() for c in s))]


def clean_plan(plan):
    """The numbered lines."""
    lines = [LIST_MARK.sub("", clean(line), count=1) if LIST_MARK.match(clean(line)) else clean(line)
             for line in re.split("\r\n|\n|\r", plan)]
    return [f"{n}. {line}" for n, line in enumerate(filter(None, lines), 1)]


def layout_digest():
    """SHA-256 a verdict head is bound to; src/proxy/compact/prompt.rs computes the same."""
    return hashlib.sha256(f"steadfast/compact/3\n{SYSTEM_LINE}\n{QUESTION}\n".encode()).hexdigest()


class Task(typing.NamedTuple):
    """The task's turn: its tokens, how many come before the first step, and where each step stands."""

    tokens: list
    opening: int
    steps: list


class Prompt:
    """Step 7: token numbers of each part."""

    def __init__(self, tokenizer_file):
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.tokenizer.encode_special_tokens = True  # a special token's name in data is encoded as ordinary text
        self.start = self.tokenizer.token_to_id("<|im_start|>")
        self.end = self.tokenizer.token_to_id("<|im_end|>")

    def run(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def turn(self, text):
        return [self.start, *self.run(text), self.end, *self.run("\n")]

    def prefix(self, constitution=None):
        rules = f"\n{constitution.rstrip()}" if constitution else ""
        return self.turn(f"system\n{SYSTEM_LINE}{rules}")

    def task(self, instruction, plan):
        tokens = [self.start, *self.run(f"user\nInstruction: {clean(instruction)}\nPlan:\n")]
        opening, steps, newline = len(tokens), [], self.run("\n")
        for line in clean_plan(plan):
            if steps:
                tokens += newline
            steps.append(range(len(tokens), len(tokens) + len(run := self.run(line))))
            tokens += run
        return Task(tokens + [self.end, *newline], opening, steps)

    def answer(self):
        return [self.start, *self.run("assistant\n")]

    def suffix(self, sentence):
        return self.turn(f"user\nScene: {sentence}\n{QUESTION}") + self.answer()

    def again(self):
        return [self.end, *self.run("\n"), *self.turn(f"user\n{AGAIN}"), *self.answer()]


# ---- judge ------------------------------------------------------------------------------------------------------------------


def task_rows(state, task):
    """Step 9: f32 [units, 2·576] over the hidden states of the task's tokens, the whole plan first."""
    opening, end = state[: task.opening], state[-2:]
    rows = [np.concatenate([state.mean(axis=0), state[-3]])]
    for step in task.steps if len(task.steps) > 1 else []:
        part = np.concatenate([opening, state[step.start : step.stop], end])
        rows.append(np.concatenate([part.mean(axis=0), state[step.stop - 1]]))
    return np.array(rows)


def suffix_row(state):
    """Step 9: f32 [2·576] over the hidden states of the suffix."""
    return np.concatenate([state.mean(axis=0), state[-1]])


class CompactProxy:
    """The whole proxy over one model folder."""

    def __init__(self, models, head=None, threads=2):
        self.models, self.threads = pathlib.Path(models), threads
        self.prompt = Prompt(self.models / "tokenizer.json")
        self.head = json.loads(pathlib.Path(head).read_text(encoding="utf-8")) if head else None

    @functools.cached_property
    def detector(self):
        return open_session(self.models / "detector.onnx", self.threads)

    @functools.cached_property
    def tagger(self):
        return open_session(self.models / "tagger.onnx", self.threads)

    @functools.cached_property
    def trunk(self):
        return open_session(self.models / "judge_trunk.onnx", self.threads)

    def look(self, working):
        """Detections and tag probabilities of a working image."""
        image = {"image": working[None]}
        return keep_detections(*self.detector.run(None, image)), self.tagger.run(None, image)[0]

    def sentence(self, working):
        return scene_sentence(*self.look(working))

    def hidden(self, ids):
        """f32 [S,576] of a whole prompt, nothing cached."""
        feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, len(ids)), np.int64)}
        past = [i.name for i in self.trunk.get_inputs() if i.name.startswith("past")]
        feed |= {name: np.zeros((1, 3, 0, 64), np.float32) for name in past}
        return self.trunk.run(["hidden"], feed)[0][0]

    def features(self, instruction, plan, sentence, constitution=None):
        """Task rows and suffix row of a whole prompt, the instruction as it is."""
        prefix, task = self.prompt.prefix(constitution), self.prompt.task(instruction, plan)
        state = self.hidden(prefix + task.tokens + self.prompt.suffix(sentence))[len(prefix) :]
        return task_rows(state[: len(task.tokens)], task), suffix_row(state[len(task.tokens) :])

    def shares(self, rows, suffix):
        """Step 10: the task's part of the margin and the suffix's."""
        task, scene = np.split(np.array(self.head["weights"], np.float64), 2)
        return float((rows.astype(np.float64) @ task).min()), float(suffix.astype(np.float64) @ scene)

    def margin(self, instruction, plan, sentence, constitution=None):
        """Step 10, of the worst reading."""
        of = lambda reading: sum(self.shares(*self.features(reading, plan, sentence, constitution))) + self.head["bias"]
        return min(of(reading) for reading in readings(instruction))

    def text_state(self, text):
        """Mean hidden state over a text's run, f32 [576]."""
        prefix = self.prompt.prefix()
        run = self.prompt.run(f"user\n{clean(text)}")
        state = self.hidden([*prefix, self.prompt.start, *run, self.prompt.end])
        return state[len(prefix) + 1 : len(prefix) + 1 + len(run)].mean(axis=0)

    def embed(self, text):
        centred = self.text_state(text) - np.array(self.head["embedding_centre"], np.float32)
        return centred / np.linalg.norm(centred)
