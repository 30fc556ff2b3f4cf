"""Starts four ranks of serve.py, asks each of them, kills one, asks the others, and asks all when it is back."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable

import torch
from model import Model
from serve import NEW

RANKS, VICTIM, PROMPT, LONG = 4, 3, [3, 1, 4, 1, 5], 120.0


class Cluster:
    """The processes of the ranks, and the ports at which they listen."""

    def __init__(self, store: str) -> None:
        self.environment = {**os.environ, "WARPVERBS_STORE": f"file://{store}", "WARPVERBS_RANKS": str(RANKS)}
        self.ranks = {rank: self.start(rank) for rank in range(RANKS)}
        self.ports = {rank: self.port(rank) for rank in range(RANKS)}

    def start(self, rank: int, *options: str) -> subprocess.Popen[str]:
        serve = os.path.join(os.path.dirname(__file__), "serve.py")
        environment = {**self.environment, "WARPVERBS_RANK": str(rank)}
        return subprocess.Popen([sys.executable, serve, *options], env=environment, stdout=subprocess.PIPE, text=True)

    def port(self, rank: int) -> int:
        """That of the line which a rank writes when it serves."""
        lines = self.ranks[rank].stdout
        assert lines is not None
        line = lines.readline()
        say(line.strip() or f"rank {rank} ended before it served")
        return int(line.split()[-1])

    def kill(self, rank: int) -> None:
        self.ranks[rank].kill()
        self.ranks[rank].wait()
        say(f"rank {rank} is killed")

    def restart(self, rank: int) -> None:
        self.ranks[rank] = self.start(rank, "--again")
        self.ports[rank] = self.port(rank)

    def stop(self) -> bool:
        """Each rank leaves the group; whether all ended with status 0."""
        for process in self.ranks.values():
            process.terminate()
        return {process.wait(LONG) for process in self.ranks.values()} == {0}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.ranks.values():
            process.kill()

    def ask(self, rank: int, what: str, good: Callable[[dict[str, object]], bool]) -> None:
        """Asks until an answer is `good`: the members of the group need a moment to agree."""
        end, url, prompt = time.monotonic() + LONG, f"http://127.0.0.1:{self.ports[rank]}", json.dumps(PROMPT).encode()
        while True:
            with urllib.request.urlopen(url, prompt, timeout=LONG) as reply:
                answer = json.load(reply)
            if good(answer):
                return say(f"rank {rank} answers with {what}")
            if time.monotonic() > end:
                sys.exit(f"rank {rank} did not answer with {what} in {LONG:.0f} seconds; its last answer is {answer}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@torch.no_grad()
def expected() -> list[int]:
    """The answer of one process that has all experts."""
    model, tokens = Model(), torch.tensor([PROMPT])
    for _ in range(NEW):
        tokens = torch.cat((tokens, model(tokens, model.all_here).argmax(-1, keepdim=True)), dim=1)
    return tokens[0, len(PROMPT) :].tolist()


def main(store: str) -> int:
    right = {"tokens": expected(), "lost": 0}
    with Cluster(store) as cluster:
        for rank in range(RANKS):
            cluster.ask(rank, "all experts", lambda answer: answer == right)
        cluster.kill(VICTIM)
        for rank in set(range(RANKS)) - {VICTIM}:
            cluster.ask(rank, "experts lost", lambda answer: answer["lost"] != 0)
        cluster.restart(VICTIM)
        for rank in range(RANKS):
            cluster.ask(rank, "all experts", lambda answer: answer == right)
        return 0 if cluster.stop() else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(main(directory))
