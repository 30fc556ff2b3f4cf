"""The loop of elastic.py with an actor of Ray for each rank. Ray restarts the actor of a rank that was killed, which then rejoins:

python ray_elastic.py
"""

import os
import tempfile

import ray

RANKS = int(os.environ.setdefault("WARPVERBS_RANKS", "3"))


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Rank:
    """One rank. Ray calls a method again that its actor did not end."""

    def serve(self, rank: int, store: str) -> None:
        import elastic  # noqa: PLC0415 In the process of the actor.

        import warpverbs  # noqa: PLC0415

        again, served = ray.get_runtime_context().was_current_actor_reconstructed, False
        while not served:
            join = warpverbs.Team.rejoin if again else warpverbs.Team
            with join(rank, RANKS, store, deadline=10, join_timeout=elastic.LONG) as team:
                served = elastic.serve(team)
            again = True


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        # One machine here. Actors on several machines meet in etcd://HOST:PORT/NAME.
        store = os.environ.get("WARPVERBS_STORE", f"file://{place}")
        ray.init(include_dashboard=False, runtime_env={"env_vars": {"WARPVERBS_RANKS": str(RANKS)}})
        try:
            ray.get([Rank.remote().serve.remote(rank, store) for rank in range(RANKS)])
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
