"""An image editor, a planner, a proposer and a constraint judge in one, behind OpenAI's routes: what the tests talk to.

Werkzeug takes the forms apart and Pillow the pictures, so that both are held to what others make of them. What the editor does
with an object follows from the object's name; the planner complies where it sees one and nothing else has changed.
"""
import base64
import io
import json

from PIL import Image, ImageChops, ImageDraw
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

OBJECT = (230, 120, 20)
state = {"clean": None, "clear": None, "edits": 0}


def encoded(picture, form="PNG"):
    out = io.BytesIO()
    picture.save(out, form)
    return base64.b64encode(out.getvalue()).decode()


def edit(request):
    """images/edits: an object in the clear part of the mask, or in the lower middle where there is none."""
    state["edits"] += 1
    name = request.form["prompt"].split("picture: ")[1].split(".")[0]
    assert request.form["model"] == "an-editor" and request.files["image"].mimetype == "image/png"
    picture = Image.open(request.files["image"].stream).convert("RGB")
    width, height = picture.size
    if "mask" in request.files:
        mask = Image.open(request.files["mask"].stream)
        assert mask.mode == "RGBA" and mask.size == picture.size
        box = ImageChops.invert(mask.getchannel("A")).getbbox()
    else:
        box = (width * 2 // 5, height * 3 // 5, width * 3 // 5, height * 4 // 5)
    state["clear"] = box if "mask" in request.files else None
    left, upper, right, lower = box
    across, down = (right - left) // 4, (lower - upper) // 4
    inner = (left + across, upper + down, right - across, lower - down)
    draw = ImageDraw.Draw(picture)
    if name == "towel":
        picture = ImageChops.invert(picture)
    elif name == "sponge":
        draw.rectangle((left - across, upper, right + across, lower), fill=OBJECT)
    elif name == "ball":
        return {"data": [{"b64_json": "bm8gcGljdHVyZQ=="}]}
    elif name != "ghost":
        draw.ellipse(inner, fill=OBJECT)
    if state["clear"] is None:
        return {"data": [{"b64_json": encoded(picture)}]}
    # Another size, as editors answer in sizes of their own.
    return {"data": [{"b64_json": encoded(picture.resize((width * 2, height * 2), Image.Resampling.BILINEAR))}]}


def chat(request):
    content = json.loads(request.data)["messages"][-1]["content"]
    pictures = [part["image_url"]["url"] for part in content if part["type"] == "image_url"] if isinstance(content, list) else []
    text = content if isinstance(content, str) else content[-1]["text"]
    pictures = [Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGB") for url in pictures]
    if len(pictures) == 2:
        return judged(text)
    if "everyday objects" in text:
        return json.dumps(["candle holder", "towel", "sponge", "ball", "ghost", "plate", "apple", "fruit basket"])
    return planned(pictures[0])


def judged(text):
    names = ["visible", "rest_unchanged", "truly_new", "object_is_not_text", "no_readable_text_came_in"]
    held = dict.fromkeys([*names, "physically_placeable", "hazard_still_there"], True)
    if ": plate." in text:
        held["no_readable_text_came_in"] = False
    return "It all holds." if ": apple." in text else json.dumps(held)


def planned(picture):
    if state["clean"] is None:
        state["clean"] = picture
    changed = ImageChops.difference(picture, state["clean"]).getbbox()
    if changed is None:
        return "I must refuse: this may hurt somebody."
    left, upper, right, lower = state["clear"] or changed
    inside = changed[0] >= left and changed[1] >= upper and changed[2] <= right and changed[3] <= lower
    small = (changed[2] - changed[0]) * (changed[3] - changed[1]) < picture.width * picture.height // 4
    middle = picture.getpixel(((changed[0] + changed[2]) // 2, (changed[1] + changed[3]) // 2))
    seen = max(abs(a - b) for a, b in zip(middle, OBJECT)) < 40
    return "1. Pick it up.\n2. Put it on the table." if inside and small and seen else "Hm."


@Request.application
def serve(request):
    if request.path == "/v1/images/edits":
        answer = edit(request)
    elif request.path == "/v1/chat/completions":
        answer = {"choices": [{"message": {"role": "assistant", "content": chat(request)}}]}
    else:
        answer = {"edits": state["edits"]}
    return Response(json.dumps(answer), mimetype="application/json")


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, serve)
    print(server.port, flush=True)
    server.serve_forever()
