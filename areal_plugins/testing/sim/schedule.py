"""What a seed stands for: an experiment's sizes, and everything that will go wrong in it. Draws, and does nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from attrs import field, frozen

MishapKind = Literal["die", "hang", "zombie", "late", "slow", "jump", "disk-full", "stop"]
"""What happens at a moment.

`die`: a worker ends. `hang`: it falls silent, is given up after the heartbeat's time-out, and killed.
`zombie`: the same, but nobody can kill it; it wakes up later and goes on with what it was told. `late`: it is
silent, and answers again before it is given up. `slow`: all it does takes longer for a while. `jump`: the clock
jumps. `disk-full`: nothing can be written for a while. `stop`: somebody asks the run to stop.
"""

StrikeKind = Literal["raise", "raise-after", "die", "die-after", "late", "twice", "explode"]
"""How one call goes wrong: before it has done anything, or after it did it and before it could say so.

`explode`: a step whose loss and gradient are not finite.
"""

ROLES = ("engine", "rollout", "trainer")


@frozen
class Mishap:
    """`kind` strikes `victim`, a role and its n-th worker, `at` seconds into the experiment, for `seconds`."""

    at: float
    kind: MishapKind
    victim: tuple[str, int] = ("", 0)
    seconds: float = 0.0


@frozen
class Strike:
    """The `call`-th call of `method`, counted over all workers and lives, goes wrong."""

    method: str
    call: int
    kind: StrikeKind
    seconds: float = 0.0


@frozen
class Kill:
    """A life of the controller ends after so many events, or before the n-th change on disk, or of checkpoints."""

    events: int | None = None
    changes: int | None = None
    saves: int | None = None

    def strikes(self, changes: int, saves: int) -> bool:
        """Whether it is over at the so-many-th change."""
        told = ((self.changes, changes), (self.saves, saves))
        return any(limit is not None and count >= limit for limit, count in told)


@frozen
class Schedule:
    """All of one seed."""

    seed: int
    spec: Mapping[str, Any]
    mishaps: tuple[Mishap, ...] = ()
    strikes: tuple[Strike, ...] = ()
    kills: tuple[Kill, ...] = ()
    debug: bool = False
    calm: bool = False
    rates: Mapping[str, tuple[tuple[StrikeKind, float], ...]] = field(factory=dict)
    """Beside `strikes`: by method, how calls go wrong at random, and the share that does."""

    patience: float = 4 * 3600.0
    latency: Mapping[str, float] = field(factory=dict)
    """Shortest seconds by method; a call takes up to 30 times that, with a heavy tail."""


STRIKES: dict[str, tuple[StrikeKind, ...]] = {
    "run_group": ("raise", "raise-after", "die", "die-after", "late"),
    "generate": ("raise", "die", "late", "twice"),
    "prepare": ("raise", "raise-after", "die", "die-after", "late"),
    "commit": ("raise", "raise-after", "die", "die-after", "late"),
    "train": ("raise", "die", "die-after", "late"),
    "publish": ("raise", "die", "die-after", "late"),
    "release": ("raise", "late", "die"),
    "save_model": ("raise", "die", "die-after", "late"),
    "save_state": ("raise", "die", "late"),
    "load_state": ("die", "late"),
    "begin_stage": ("die", "late"),
    "setup": ("die", "die-after", "late"),
    "start": ("raise", "late"),
    "stats": ("raise", "die", "late"),
    "size": ("die", "late"),
    "discard": ("die", "late"),
}
"""How calls of each method may go wrong."""

LATER: dict[str, tuple[StrikeKind, ...]] = {
    "materialize": ("raise", "die", "die-after", "late"),
    "written": ("raise", "raise-after", "die", "die-after", "late"),
    "health": ("raise", "die", "late"),
    "partial": ("raise", "die", "late"),
}
"""The same, of methods that seeds came to strike later: these draw from a stream of their own."""


def draw(seed: int) -> Schedule:
    """The schedule of `seed`, the same for ever."""
    random = Random(seed)
    spec = _spec(random)
    spec["weights"]["every"] = _every(Random(seed ^ 0xE7E), spec["pipeline"]["max_staleness"])
    calm = random.random() < 0.1
    return Schedule(
        seed=seed,
        spec=spec,
        mishaps=() if calm else _mishaps(random, spec),
        strikes=() if calm else (*_strikes(random), *_later_strikes(Random(seed ^ 0x1A7E))),
        kills=() if calm else _kills(random),
        debug=random.random() < 0.15,
        calm=calm and not faulty(spec),
        latency=_latency(random),
    )


def days(hours: float, seed: int) -> Schedule:
    """A long run at the rates of faults that users report: asked to stop after so many hours.

    0.3 % of environment processes hang, 1.2 % of workers run out of memory and die, 0.8 % of steps explode; a
    rollout worker, an engine and a trainer is taken to run that risk in every step, and an environment in every
    rollout of a group.
    """
    spec: dict[str, Any] = {
        "name": "days",
        "seed": seed,
        "model": "mock",
        "platform": "mock",
        "executor": "sim",
        "resources": {"train": {"num_gpus": 2}, "infer": {"num_gpus": 4}, "rollout": {"cpus": 2}},
        "inference": {
            "type": "mock",
            "max_concurrent": 4,
            "mock": {"token_seconds": 0.2, "shortest": 20, "longest": 200, "lengths": "log-uniform"},
            "sampling": {"max_new_tokens": 200},
        },
        "training": {"backend": "mock", "optimizer": "mock", "batch_size": 8, "max_steps": 1_000_000},
        "weights": "mock",
        "objective": {"type": "mock", "group_size": 2},
        "environments": [{"name": "tasks", "type": "mock", "size": 1000, "reward": "mock"}],
        "pipeline": {"max_staleness": 4},
        "supervision": {"rollout_timeout": 300.0},
        "evaluation": {"before": False, "after": False, "every": 200, "samples": 4},
        "checkpoint": {"every": 20, "keep": 2},
        "trackers": [],
    }
    return Schedule(
        seed=seed,
        spec=spec,
        mishaps=(Mishap(hours * 3600.0, "stop"),),
        latency={"start": 5.0, "setup": 1.0, "train": 15.0, "publish": 0.5, "prepare": 0.5, "commit": 0.1},
        rates={
            "run_group": (("late", 0.003), ("die", 0.006)),  # two groups a worker and step
            "prepare": (("die", 0.012),),
            "train": (("die", 0.006), ("explode", 0.004)),  # two ranks
        },
    )


# --- the experiment --------------------------------------------------------------------------------


def _spec(random: Random) -> dict[str, Any]:
    group = random.choice((1, 2, 2, 4))
    groups = random.choice((1, 2, 2, 3, 4))
    steps = random.randint(2, 9)
    spec: dict[str, Any] = {
        "name": "simulated",
        "seed": random.randrange(1 << 16),
        "model": "mock",
        "platform": "mock",
        "executor": "sim",
        "resources": {
            "train": {"num_gpus": random.choice((1, 1, 2))},
            "infer": {"num_gpus": random.randint(1, 6)},
            "rollout": {"cpus": random.randint(1, 3)},
        },
        "inference": _inference(random),
        "training": {"backend": "mock", "optimizer": "mock", "batch_size": group * groups, "max_steps": steps},
        "weights": {"type": "mock", "mock": {"faults": _faults(random, "receive", 0.1)}},
        "objective": {"type": "mock", "group_size": group},
        "environments": _environments(random),
        "pipeline": {
            "max_staleness": random.choice((0, 0, 1, 1, 2, 3, 4, 8)),
            "on_stale": random.choice(("wait", "wait", "drop")),
            "interruptible": random.random() < 0.7,
            "queue_size": random.choice(("auto", "auto", groups + random.randint(0, 9))),
        },
        "supervision": _supervision(random),
        "evaluation": _evaluation(random, steps),
        "checkpoint": {"every": random.choice((None, 1, 1, 2, 3)), "keep": random.randint(1, 3)},
        "trackers": [],
    }
    if group > 1 and random.random() < 0.2:
        spec["objective"]["least_spread"] = 0.5
        for entry in spec["environments"]:
            entry["reward"]["drawn"] = True
    if random.random() < 0.25:
        spec["stages"] = _stages(random, spec, steps)
    limits, queue = spec["supervision"], _longest_queue(spec)
    limits |= {"rollout_timeout": max(limits["rollout_timeout"], queue), "update_timeout": max(600.0, queue)}
    return spec


def _longest_queue(spec: Mapping[str, Any]) -> float:
    """Seconds that one engine takes, twice, for all that may be under way: of that alone nothing must be late."""
    inference = spec["inference"]
    answers = (spec["pipeline"]["max_staleness"] + 1) * spec["training"]["batch_size"] / inference["max_concurrent"]
    return float(2 * answers * inference["sampling"]["max_new_tokens"] * inference["mock"]["token_seconds"])


def _inference(random: Random) -> dict[str, Any]:
    shortest = random.choice((1, 5, 20))
    return {
        "type": "mock",
        "max_concurrent": random.choice((1, 2, 4, 16)),
        "mock": {
            "token_seconds": random.choice((0.01, 0.02, 0.1)),
            "shortest": shortest,
            "longest": shortest * random.choice((2, 10, 30)),
            "lengths": random.choice(("log-uniform", "uniform", "heavy-tail")),
            "exponent": random.choice((0.8, 1.5)),
        },
        "sampling": {"max_new_tokens": shortest * 20},
    }


def _every(random: Random, staleness: int) -> int:
    """Steps from one version to the next; from a stream of its own, as seeds came to vary it later."""
    return min(random.choice((1, 1, 1, 2, 3)), staleness + 1)


def _environments(random: Random) -> list[dict[str, Any]]:
    return [_environment(random, name) for name in ("one", "two", "three")[: random.choice((1, 1, 1, 2, 3))]]


def _environment(random: Random, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "weight": random.choice((1.0, 2.0)),
        "type": "mock",
        "size": random.choice((None, 7, 16, 50)),
        "test_size": random.choice((0, 3, 8)),
        "latency": {"run": random.choice((0.0, 0.1, 2.0))},
        "faults": _faults(random, "run", 0.15, ("raise", "hang", "late")),
        "reward": {"type": "mock", "target": 5, "faults": _faults(random, "score", 0.15, ("raise", "hang", "late"))},
    }


def _faults(random: Random, method: str, odds: float, kinds: tuple[str, ...] = ("raise",)) -> list[dict[str, Any]]:
    if random.random() > odds:
        return []
    return [{"method": method, "kind": random.choice(kinds), "call": random.randint(1, 40)}]


def faulty(spec: Mapping[str, Any]) -> bool:
    """Whether a component of it is told to fail."""
    return '"kind"' in json.dumps(spec)


def _supervision(random: Random) -> dict[str, Any]:
    return {
        "heartbeat_timeout": random.choice((10.0, 30.0, 60.0)),
        "max_restarts": random.choice((0, 1, 3, 3)),
        "task_retries": random.choice((0, 1, 2)),
        "max_failed_share": random.choice((0.1, 0.2, 0.5)),
        "rollout_timeout": random.choice((300.0, 1200.0)),
    }


def _evaluation(random: Random, steps: int) -> dict[str, Any]:
    return {
        "every": random.choice((None, None, 1, min(steps, 3))),
        "before": random.random() < 0.3,
        "after": random.random() < 0.3,
        "samples": random.choice((2, 4)),
    }


def _stages(random: Random, spec: Mapping[str, Any], steps: int) -> list[dict[str, Any]]:
    """Two or three: one may imitate, one may have other sizes and other environments."""
    stages: list[dict[str, Any]] = [{"name": "first", "training": {"max_steps": random.randint(1, 3)}}]
    if random.random() < 0.5:
        stages[0] |= {"objective": "sft", "pipeline": {"queue_size": "auto"}}
    stages.append({"name": "second", "training": {"max_steps": steps}})
    if random.random() < 0.5:
        stages.append({"name": "third", "training": {"max_steps": 2, "batch_size": spec["training"]["batch_size"] * 2}})
        stages[-1] |= {"environments": spec["environments"][:1], "pipeline": {"queue_size": "auto"}}
    return stages


# --- what goes wrong -------------------------------------------------------------------------------


def _mishaps(random: Random, spec: Mapping[str, Any]) -> tuple[Mishap, ...]:
    count = random.choice((0, 1, 1, 2, 2, 3, 5, 8))
    heartbeat = spec["supervision"]["heartbeat_timeout"]
    return tuple(sorted((_mishap(random, heartbeat) for _ in range(count)), key=lambda mishap: mishap.at))


def _mishap(random: Random, heartbeat: float) -> Mishap:
    kind: MishapKind = random.choice(
        ("die", "die", "die", "hang", "zombie", "zombie", "late", "slow", "jump", "disk-full", "stop")
    )
    role = random.choices(ROLES, (6, 4, 1))[0]
    seconds = {
        "late": heartbeat * random.uniform(0.1, 0.95),
        "zombie": heartbeat * (1.0 + random.expovariate(0.3)),
        "slow": random.uniform(5.0, 60.0),
        "jump": random.uniform(60.0, 600.0),
        "disk-full": random.uniform(1.0, 20.0),
    }.get(kind, 0.0)
    return Mishap(random.uniform(0.0, 60.0), kind, (role, random.randrange(6)), seconds)


def _strikes(random: Random) -> tuple[Strike, ...]:
    return tuple(_strike(random) for _ in range(random.choice((0, 1, 2, 3, 4))))


def _strike(random: Random) -> Strike:
    often = ("run_group", "generate", "prepare", "commit", "train")
    method = random.choice(often) if random.random() < 0.6 else random.choice(tuple(STRIKES))
    call = int(60 ** random.random())
    return Strike(method, call, random.choice(STRIKES[method]), seconds=random.uniform(1.0, 30.0))


def _later_strikes(random: Random) -> tuple[Strike, ...]:
    """So that whatever else befalls a seed stays as it was."""
    methods = random.choices(tuple(LATER), k=random.choice((0, 0, 1, 2, 3)))
    most = {"materialize": 2, "written": 8, "health": 60, "partial": 12}
    return tuple(
        Strike(method, random.randint(1, most[method]), random.choice(LATER[method]), seconds=random.uniform(1.0, 30.0))
        for method in methods
    )


def _kills(random: Random) -> tuple[Kill, ...]:
    return tuple(_kill(random) for _ in range(random.choice((0, 0, 0, 1, 1, 2, 3))))


def _kill(random: Random) -> Kill:
    point = random.random()
    if point < 0.5:
        return Kill(events=int(50 * 200 ** random.random()))
    return Kill(changes=int(3 * 40 ** random.random())) if point < 0.75 else Kill(saves=random.randint(1, 90))


def _latency(random: Random) -> dict[str, float]:
    """Shortest seconds of what takes any."""
    slow = random.choice((1.0, 1.0, 3.0))
    shortest = {
        "start": 1.0, "setup": 0.2, "train": 0.3, "publish": 0.05, "prepare": 0.1, "commit": 0.03, "run_group": 0.005,
        "save_model": 0.2, "save_state": 0.1, "load_state": 0.2, "stats": 0.01, "generate": 0.002, "release": 0.02,
        "partial": 0.1,
    }  # fmt: skip
    return {method: seconds * slow for method, seconds in shortest.items()}
