"""One rank of the served model: `serve.py [--again]`, with the variables that run.py sets."""

import json
import queue
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from model import EXPERTS, HIDDEN, LAYERS, TOP_K, VOCABULARY, Model

import warpverbs

LENGTH, NEW, LONG = 8, 4, 120.0


class Request:
    """A prompt, and the answer when it is done."""

    def __init__(self, prompt: object) -> None:
        if not isinstance(prompt, list) or not 0 < len(prompt) <= LENGTH or not all(each in range(VOCABULARY) for each in prompt):
            raise ValueError(f"a prompt is a list of 1 to {LENGTH} numbers below {VOCABULARY}")
        self.prompt, self.answer, self.done = prompt, dict[str, object](), threading.Event()


class Ranks:
    """The experts of all ranks. Call n of the team is of layer n modulo LAYERS at each rank."""

    def __init__(self, team: warpverbs.Team, model: Model) -> None:
        self.model = model
        self.moe = warpverbs.Moe(team, "served", hidden=HIDDEN, experts=EXPERTS, top_k=TOP_K, max_tokens=LENGTH + NEW)
        self.call, self.lost = self.moe.call(), 0
        self.nothing = (torch.empty(0, HIDDEN).bfloat16(), torch.empty(0, TOP_K).long(), torch.empty(0, TOP_K))

    def layer(self) -> int:
        return self.moe.progress()[0] % LAYERS

    def run(self, layer: int, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        got = self.call.dispatch(x, chosen.int(), weights)
        y = torch.empty_like(got.x)
        for place, number in enumerate(self.moe.local_experts()):
            rows = int(got.counts[place])
            y[place, :rows] = self.model.expert(layer, number, got.x[place, :rows])
        result = self.call.combine(y)
        self.lost += int((result.token_valid == 0).sum())
        return result.out

    def run_for_others(self) -> None:
        """One call without tokens of this rank: its experts answer the tokens of the others."""
        self.run(self.layer(), *self.nothing)


def answer(model: Model, ranks: Ranks, request: Request) -> None:
    tokens, ranks.lost = torch.tensor([request.prompt]), 0
    for _ in range(NEW):
        tokens = torch.cat((tokens, model(tokens, ranks.run).argmax(-1, keepdim=True)), dim=1)
    request.answer = {"tokens": tokens[0, len(request.prompt) :].tolist(), "lost": ranks.lost}
    request.done.set()


def listen(requests: "queue.SimpleQueue[Request]") -> int:
    """Answers HTTP requests at a free port, which is returned."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                request = Request(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            except (TypeError, ValueError) as error:
                return self.reply(400, {"error": str(error)})
            requests.put(request)
            if not request.done.wait(LONG):
                return self.reply(503, {"error": f"no answer in {LONG:.0f} seconds"})
            return self.reply(200, request.answer)

        def reply(self, status: int, answer: dict[str, object]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


@torch.no_grad()
def main() -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    make_team = warpverbs.Team.rejoin if "--again" in sys.argv else warpverbs.Team
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    with make_team(deadline=30, join_timeout=LONG) as team:
        model = Model()
        ranks = Ranks(team, model)
        with warpverbs.Group(team, ranks.moe, lease=2.0) as group:
            group.wait("serving", LONG)
            while ranks.layer() != 0:
                ranks.run_for_others()  # The others are in the middle of a pass.
            sys.stdout.write(f"rank {team.rank} serves as generation {team.generation} at port {listen(requests)}\n")
            sys.stdout.flush()
            while group.state in ("serving", "changing"):
                if stop.is_set():
                    group.leave(LONG)
                    return 0
                try:
                    answer(model, ranks, requests.get_nowait())
                except queue.Empty:
                    for _ in range(LAYERS):
                        ranks.run_for_others()
    return 1


if __name__ == "__main__":
    sys.exit(main())
