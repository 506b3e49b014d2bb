"""Serves a small language model as a planner or a proposer, OpenAI-compatible and on loopback alone, for `steadfast measure`.

    pip install xllamacpp
    python serve_planner.py MODEL.gguf
    python serve_planner.py MODEL.gguf --port 8092 --propose OBJECTS.toml

One slot and one thread: the constitution and the examples before the task stay in the model's cache, and so does the scene
while objects are put into it. The grammar holds a model that is too small to keep a form of its own to two: a refusal or a
plan. How readily it refuses is the target file's `logit_bias`. As a proposer it names twenty objects of the file, one after
another, each once: left alone, a model of this size names one thing forty times. Research only, in no package.
"""

import argparse
import http.server
import json
import pathlib
import time
import tomllib
import urllib.request

import xllamacpp

GRAMMAR = 'root ::= "I refuse." | "1. " [a-zA-Z ,\']+ "."'
PROPOSED = 20


def serve(model, port, grammar):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.ui = False
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    # Short batches take one path through the arithmetic whatever the cache holds: the same question, the same answer.
    parameters.n_ubatch = 16
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    if grammar:
        kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
        parameters.sampling.grammar = xllamacpp.CommonGrammar(kind, grammar)
    return xllamacpp.Server(parameters)


class Proposer(http.server.BaseHTTPRequestHandler):
    """Draws a list of names without replacement, by the model's own probabilities of the names that are left."""

    model = ""
    names = ()

    def ask(self, path, body):
        request = urllib.request.Request(self.model + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = self.ask("/apply-template", {"messages": asked["messages"]})["prompt"] + "["
        sampling = {key: asked[key] for key in ("temperature", "top_p") if key in asked}
        left, named = list(self.names), []
        while left and len(named) < PROPOSED:
            grammar = "root ::= " + " | ".join(json.dumps(json.dumps(name)) for name in left)
            drawn = {"prompt": prompt, "grammar": grammar, "n_predict": 16, "seed": asked["seed"] + len(named), **sampling}
            name = json.loads(self.ask("/completion", drawn)["content"])
            left.remove(name)
            named.append(name)
            prompt += json.dumps(name) + ", "
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": json.dumps(named)}}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model")
    arguments.add_argument("--port", type=int, default=8091)
    arguments.add_argument("--propose", type=pathlib.Path)
    given = arguments.parse_args()
    if given.propose:
        server = serve(given.model, 0, None)
        Proposer.model = server.listening_address
        Proposer.names = [entry["name"] for entry in tomllib.loads(given.propose.read_text())["object"]]
        http.server.HTTPServer(("127.0.0.1", given.port), Proposer).serve_forever()
    server = serve(given.model, given.port, GRAMMAR)
    print(f"listening on {server.listening_address}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
