"""Reads the public sets into one list of labelled examples, arranged so that source and style do not give the label away.

Each example is {source, group, pair, label, instruction, plan, scene, split}; label 1 is "may run" (comply), 0 is "must not" (refuse).
`group` is what a split must not cut (a simulator scene, a scenario, a task); `pair` ties the two sides of a contrast. Fields
that leak are never read: HomeSafe's editing plans describe the danger in a style of their own.
"""

import csv
import json
import pathlib
import random
import re
import tomllib

import contrast
import numpy as np
import padding
import perturb
import reference
import splits
from PIL import Image

HERE = pathlib.Path(__file__).parent
NOTHING = "nothing recognised."


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def spaced(text):
    """"GarbageCan" → "garbage can": the same benchmark in a planner's spelling."""
    return re.sub(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", lambda m: re.sub(r"(?<=[a-z])(?=[A-Z])", " ", m.group()).lower(), text)


def sentence_case(text):
    text = text.strip()
    return text[:1].upper() + text[1:]


def example(source, group, pair, label, instruction, plan, scene, **more):
    return {
        "source": source, "group": str(group), "pair": f"{source}/{pair}", "label": int(label), "instruction": instruction,
        "plan": plan, "scene": scene, "split": splits.part(source, str(group)), **more,
    }


class Scenes:
    """Scene sentences of image files, clean or perturbed, kept in a JSON cache."""

    def __init__(self, proxy, cache):
        self.proxy, self.cache = proxy, cache
        self.known = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}

    def sentences(self, path):
        """[clean, copy 0, …, copy 4]."""
        key = "/".join(path.parts[-3:])
        if key not in self.known:
            working = reference.working_image(np.asarray(Image.open(path).convert("RGB")))
            rng = np.random.default_rng(len(self.known))
            copies = [perturb.copy(working, rng, index) for index in range(5)]
            self.known[key] = [self.proxy.sentence(image) for image in (working, *copies)]
        return self.known[key]

    def save(self):
        self.cache.write_text(json.dumps(self.known, indent=0), encoding="utf-8")


def sabench(data, scenes, rng):
    """Every triple with its clean scene, and once more with a perturbed, empty or wrong scene, in plain spelling, or without steps."""
    rows = lines(data / "sabench" / "triples.jsonl")
    pairs = {}
    for pair in lines(data / "sabench" / "pairs.jsonl"):
        pairs.setdefault(pair["safe"], pair["pair"])
        pairs.setdefault(pair["unsafe"], pair["pair"])
    seen = {row["id"]: scenes.sentences(data / "sabench" / row["image"]) for row in rows}
    for row in rows:
        plan, label = "\n".join(row["plan"]), row["label"] == "safe"
        clean, *copies = seen[row["id"]]
        make = lambda kind, instruction, plan, scene: example(
            "sabench", row["scene"], pairs.get(row["id"], row["id"]), label, instruction, plan, scene, kind=kind, id=row["id"])
        yield make("clean", row["instruction"], plan, clean)
        draw = rng.random()
        other = rng.choice([NOTHING, seen[rng.choice(rows)["id"]][0], rng.choice(copies)])
        if draw < 0.4:
            yield make("noisy", row["instruction"], plan, other)
        elif draw < 0.7:
            yield make("spaced", spaced(row["instruction"]), spaced(plan), other)
        else:
            yield make("short", spaced(row["instruction"]), spaced(row["instruction"]), clean)


def safetext(data, scenes, rng):
    """Situation as the instruction, advice as the plan; one safe and one unsafe advice over one borrowed scene."""
    # Not every scene that is known: a warm cache knows more than a cold one, and the draw would depend on it.
    pool = [sentences[0] for name, sentences in scenes.known.items() if name.startswith("sabench/")]
    for situation, advice in json.loads((data / "safetext" / "SafeText.json").read_text(encoding="utf-8")).items():
        scene = rng.choice([NOTHING, rng.choice(pool)])
        command = rng.random() < 0.3  # situation and advice in one sentence, no step apart from it
        for label, kind in ((0, "unsafe"), (1, "safe")):
            text = rng.choice(advice[kind])
            joined = f"{situation.rstrip(' ,')}, {text}"
            asked, plan = (joined, joined) if command else (situation.rstrip(" ,") + ".", sentence_case(text))
            yield example("safetext", situation, situation, label, asked, plan, scene)


def mssbench(data, rng):
    """Embodied rows with their written observations, and one paraphrase a side in the eyes' form."""
    rows = json.loads((data / "mssbench" / "combined.json").read_text(encoding="utf-8"))["embodied"]
    for number, row in enumerate(rows):
        same = row["safe_instruction"].strip(" .") == row["unsafe_instruction"].strip(" .")
        index = rng.randrange(5)
        for kind, label in (("safe", 1), ("unsafe", 0)):
            observation, text = row[f"observation_{kind}"], row[f"{kind}_instruction"]
            more = {"kind": "same-text" if same else "other-text"}
            # Rows that repeat each other's wording must not be parted: one group a task and observation.
            group = f"{row['task']}/{row['observation_unsafe']}"
            yield example("mssbench", group, number, label, text, text, observation, **more)
            options = row.get(f"{kind}_instructions") or [text]
            again = options[index % len(options)]
            plan = rng.choice([again, spaced(again), spaced(text)])
            scene = spaced(observation)
            yield example("mssbench", group, f"{number}/again", label, again, plan, scene, kind="again")


def earbench(data, rng, count):
    """Unsafe tasks, one or two a safety tip, with their observation; beside each an everyday task over the same observation."""
    with (data / "earbench" / "dataset.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rng.shuffle(rows)
    taken = {}
    for row in rows:
        if taken.setdefault(row["Safety Tip"], 0) >= 2 or sum(taken.values()) >= count:
            continue
        taken[row["Safety Tip"]] += 1
        observation = re.sub(r"_\d+", "", row["Text Observation"])
        things = [re.sub(r"_\d+", "", t) for t in re.findall(r"'([^']+)_\d", row["Objects"])] or ["table"]
        thing = rng.choice(things)
        everyday = rng.choice([
            f"Tell me where the {thing} is.", f"Look at the {thing} and describe it.", f"Go near the {thing} and wait there.",
            f"Count how many things stand next to the {thing}.", f"Take a picture of the {thing}.",
            f"Stop in front of the {thing} and ask the person what to do.",
        ])
        scene = observation if rng.random() < 0.7 else NOTHING
        yield example("earbench", row["Safety Tip"], row["ID"], 0, row["Instruction"], row["Instruction"], scene)
        yield example("earbench", row["Safety Tip"], row["ID"], 1, everyday, everyday, scene)


def natural_step(action):
    """`PLACE_ON_TOP(mug.n.04_1, floor.n.01_1)` → "place on top the mug, the floor"."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", action.strip())
    if not match:
        return action.lower()
    things = [re.sub(r"\.n\.\d+_\d+|__", " ", t).replace("_", " ").strip() for t in (match[2] or "").split(",") if t.strip()]
    return match[1].replace("_", " ").lower() + (" the " + ", the ".join(things) if things else "")


def long_plans(data, scenes, rng, hazards, fine, count):
    """Reference plans (EIRAD, IS-Bench), each once with a harmless and once with a dangerous step put in."""
    tasks = []
    rows = [r for r in lines(data / "eirad" / "triples.jsonl") if r["label"] == "safe" and r["plan"]]
    for row in rng.sample(rows, min(count, len(rows))):
        scene = rng.choice(scenes.sentences(data / "eirad" / row["image"]))
        tasks.append(("eirad", row["instruction"].lower(), row["id"], row["instruction"], [s for s in row["plan"] if s != "Done"], scene))
    for path in sorted((data / "isbench" / "tasks").glob("*.json")):
        task = json.loads(path.read_text(encoding="utf-8"))
        steps = [natural_step(s["action"]) for s in task.get("example_planning") or [] if s["action"] != "DONE"]
        setup = " ".join(re.sub(r"^\d+\.\s*", "", s) for s in task["planning_context"]["initial_setup"])
        if 0 < len(steps) <= 12 and rng.random() < 0.4:
            tasks.append(("isbench", task["scene_info"]["default_scene_model"], path.stem, task["planning_context"]["task_instruction"], steps, setup))
    for source, group, pair, instruction, steps, scene in tasks:
        part = splits.part(source, str(group))
        at = rng.randint(0, len(steps))
        for label, pool in ((1, fine[part]), (0, hazards[part])):
            extra = rng.choice(pool)
            yield example(source, group, pair, label, instruction, "\n".join([*steps[:at], extra, *steps[at:]]), scene)
        if rng.random() < 0.3:
            yield example(source, group, f"{pair}/plain", 1, instruction, instruction, scene)


def badrobot(data, rng):
    """Malicious wishes, plain and disguised; beside each a wish that is fine, from EIRAD's benign half."""
    with (data / "badrobot" / "physical_subset.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    benign = sorted({r["instruction"] for r in lines(data / "eirad" / "triples.jsonl") if r["label"] == "safe"})
    for row in rows:
        text, other = sentence_case(row[rng.choice(["request", "semantic_rephrase"])]), rng.choice(benign)
        group = f"{row['category']}/{row['index']}"
        yield example("badrobot", group, row["index"], 0, text, text, NOTHING)
        yield example("badrobot", group, row["index"], 1, other, other, NOTHING)


def authored(per_relation, seed):
    for number, (relation, kind, safe, unsafe) in enumerate(contrast.pairs(seed, per_relation)):
        for label, side in ((1, safe), (0, unsafe)):
            yield example("contrast", relation, f"{seed}-{number}", label, *side, kind=kind)


def written():
    """Our own pairs of models/written_pairs.jsonl; pairs of one relation stay together."""
    for pair in lines(HERE / "written_pairs.jsonl"):
        for label, name in ((1, "safe"), (0, "unsafe")):
            side = pair[name]
            yield example("written", pair["relation"], pair["id"], label, side["instruction"], "\n".join(side["plan"]), side["scene"], kind=pair["kind"])


def padded(rows):
    """A third of the pairs once more with bland steps put in on both sides, and a sixth with a claim in the plan or the request."""
    for row in rows:
        draw = random.Random(row["pair"]).random()
        rng = random.Random(f"{row['pair']}/{row['label']}/{row.get('kind')}")
        if draw < 0.33:
            yield dict(row, plan=padding.pad(rng, row["plan"], padding.BLAND["train"], rng.randint(1, 3)), kind="padded")
        elif draw < 0.5:
            claim = rng.choice(padding.CLAIMS["train"])
            instruction, plan = row["instruction"], row["plan"]
            if rng.random() < 0.5:
                plan = padding.pad(rng, plan, (claim,), 1)
            else:
                instruction = rng.choice((f"{instruction} {claim}", f"{claim} {instruction}"))
            yield dict(row, instruction=instruction, plan=plan, kind="claimed")


def read(data, scenes, seed=0, ear=150, plans=40, per_relation=8):
    """The whole corpus, in a fixed order."""
    rng = random.Random(seed)
    rows = list(sabench(data, scenes, rng))
    steps = {label: {part: [] for part in ("train", "calibration", "test")} for label in (0, 1)}
    for row in rows:
        if row["kind"] == "clean":
            steps[row["label"]][row["split"]].append(spaced(row["instruction"]))
    rows += safetext(data, scenes, rng)
    rows += mssbench(data, rng)
    rows += earbench(data, rng, ear)
    rows += long_plans(data, scenes, rng, steps[0], steps[1], plans)
    rows += badrobot(data, rng)
    for draw in range(2):
        rows += authored(per_relation, draw)
    rows += padded(list(rows))
    ours = list(written())
    rows += [*ours, *padded(ours)]
    scenes.save()
    return rows


# ---- constitution text ------------------------------------------------------------------------------------------------------


def number(value):
    """As the daemon prints it: 3.0 → "3"."""
    return f"{value:g}"


def constitution(path):
    """(capabilities line, rule texts) of config/constitution.toml, as `Constitution::prompt_text` writes them."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    robot = table["robot"]
    arms = {1: "one", 2: "two", 3: "three"}.get(robot["arms"], "four")
    line = (
        f"Robot: {robot['base']}, {arms} {robot['arm_dof']}-DoF arm{'' if robot['arms'] == 1 else 's'}, {robot['gripper']}; "
        f"payload {number(robot['payload_kg'])} kg, reach {number(robot['reach_m'])} m, lifts to {number(robot['lift_height_m'])} m, "
        f"drives up to {number(robot['speed_m_per_s'])} m/s"
    )
    *others, last = robot.get("cannot") or [""]
    line += (f"; cannot {', '.join(others)} or {last}." if others else f"; cannot {last}.") if last else "."
    return line, [(rule["number"], rule["text"]) for rule in table["rule"]]


def render(line, rules):
    return "\n".join([line, *(f"{n}. {text}" for n, text in rules)])


def constitution_variants(line, rules, count, seed=0):
    """Full text first, then halves and shuffles: {name: text}."""
    rng = random.Random(seed)
    variants = {"full": render(line, rules)}
    for index in range(count):
        half = sorted(rng.sample(range(len(rules)), len(rules) // 2))
        variants[f"half-{index}"] = render(line, [rules[i] for i in half])
        mixed = [text for _, text in rng.sample(rules, len(rules))]
        variants[f"shuffled-{index}"] = render(line, list(enumerate(mixed, 1)))
        fewer = [text for _, text in rng.sample(rules, rng.randint(3, 20))]
        variants[f"few-{index}"] = render(line, list(enumerate(fewer, 1)))
    return variants


def with_prefixes(rows, variants, seed=0):
    """(row, prefix name): every row once under a drawn prefix, then what is held out of the evaluated sets under four of them."""
    rng = random.Random(seed)
    others = [name for name in variants if name != "full"]
    drawn = []
    for row in rows:
        draw = rng.random()
        drawn.append((row, "full" if draw < 0.55 else "none" if draw < 0.7 else rng.choice(others)))
    rng.shuffle(drawn)  # whatever is computed first is then a fair sample of the whole
    held_out = [row for row in rows if row["split"] != "train" and row.get("kind") in ("clean", "same-text", "other-text")]
    return drawn, [(row, name) for name in ("full", "none", "half-0", "shuffled-0") for row in held_out]
