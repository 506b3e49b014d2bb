"""Serves a small language model as a planner, OpenAI-compatible and on loopback alone, for `steadfast measure`.

    pip install xllamacpp && python serve_planner.py MODEL.gguf [PORT]

One slot and one thread: the constitution and the examples before the task stay in the model's cache, and so does the scene
while objects are put into it. The grammar holds a model that is too small to keep a form of its own to two: a refusal or a
plan. How readily it refuses is the target file's `logit_bias`; research only, in no package.
"""

import sys
import time

import xllamacpp

GRAMMAR = 'root ::= ("REFUSE: " | "PLAN: 1. ") [a-zA-Z ,\']+ "."'


def main(model, port):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.ui = False
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
    parameters.sampling.grammar = xllamacpp.CommonGrammar(kind, GRAMMAR)
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8091)
