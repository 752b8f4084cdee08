"""What a training takes of every rank, worked out from its sizes: memory, network, seconds.

Letters as in the formulas: U users, M items and C clicks of the whole log, W ranks, b clicks of a
step, k items drawn for a click, d numbers of a row. A number has 4 bytes; raw ids count as 8.
"""

from dataclasses import dataclass, replace
from math import exp, expm1, log1p
from typing import Literal

from unexposed.data.partitions import PARTITIONS
from unexposed.engine.cpu.lanes import whole
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError

NUMBER = 4  # bytes
MOST = 2**63 - 1
Where = Literal["host", "card"]
Hardware = Literal["cpu", "cuda"]
LOOKS_AHEAD = ("bilevel", "bilevel_on_batch")
LEARNS = ("joint", "alternate", *LOOKS_AHEAD)  # strategies that move the gate


@dataclass(frozen=True)
class Network:
    """What ranks talk through: bytes a second in each direction, and seconds of a message."""

    name: str
    ranks: int
    bytes_a_second: float
    latency: float

    def seconds(self, sums: int, n_bytes: float, told: float = 0.0) -> float:
        """Seconds of a step that adds up n_bytes in all-reduces and tells `told` to each rank.

        A ring: 2(W − 1)/W · bytes / speed + 2(W − 1) · latency for each all-reduce, and
        (W − 1) · told / speed.
        """
        hops = self.ranks - 1
        travels = 2 * hops / self.ranks * n_bytes + hops * told
        return travels / self.bytes_a_second + 2 * hops * sums * self.latency


NVLINK = Network("8 cards, NVLink at 450 GB/s", 8, 450e9, 3e-6)
ETHERNET = Network("16 machines, 25 Gb Ethernet", 16, 25e9 / 8, 30e-6)
NETWORKS = (NVLINK, ETHERNET)


@dataclass(frozen=True)
class Part:
    """Something that a rank holds."""

    name: str
    where: Where
    n_bytes: int
    formula: str


@dataclass(frozen=True)
class Training:
    """The sizes of a training over ranks; `dim` counts the columns of biases too."""

    users: int
    items: int
    clicks: int
    ranks: int
    dim: int
    batch_size: int
    negatives: int
    strategy: Strategy | None = None  # of a learned exposure
    engine: Hardware = "cpu"

    def __post_init__(self) -> None:
        for name in ("users", "items", "clicks", "ranks", "dim", "batch_size", "negatives"):
            value = getattr(self, name)
            if not 1 <= value <= MOST:
                raise InputError(f"{name} must be between 1 and {MOST:.0e}, got {value:g}")
        if self.ranks > PARTITIONS:
            raise InputError(
                f"ranks must be at most {PARTITIONS}, the partitions of users, got {self.ranks}"
            )
        if self.clicks > self.users * self.items:
            raise InputError(
                f"{self.users:,} users and {self.items:,} items have fewer pairs than the "
                f"{self.clicks:,} clicks: a pair counts once"
            )

    # a rank ------------------------------------------------------------------------------------

    @property
    def own_users(self) -> int:
        """Users of the rank with the most partitions, U · ⌈64/W⌉/64."""
        return -(-self.users * -(-PARTITIONS // self.ranks) // PARTITIONS)

    @property
    def own_clicks(self) -> int:
        return -(-self.clicks * -(-PARTITIONS // self.ranks) // PARTITIONS)

    @property
    def user_tables(self) -> int:
        return 1 if self.strategy is None else 2

    def memory(self) -> list[Part]:
        """What a rank holds while it trains, the rows of users first."""
        u, c, m, k = self.own_users, self.own_clicks, self.items, self.negatives
        rows: Where = "card" if self.engine == "cuda" else "host"
        of_relevance, of_exposure = self._row()
        both = of_relevance + (of_exposure if self.user_tables == 2 else 0)
        gate = 2 * of_exposure if self.strategy is not None else 0
        values = NUMBER * self.dim
        lists = 8 if self.engine == "cuda" else NUMBER
        divided = self.ranks > 1
        position = 8 if divided else 0
        share = 16 if divided else 0
        samples = Part(
            *("samples of an epoch", "host", c * (16 + position + NUMBER * (1 + k))),
            f"({16 + position} + 4 (1 + k)) c",
        )
        if self.engine == "cuda" and not divided:  # samples are drawn there, a few at a time
            samples = Part("the log again", "card", 8 * c + 12 * u, "8 c + 12 u")
        return [
            Part("user rows, moments", rows, u * both, f"{both:,} u"),
            Part("item rows, moments", rows, m * of_relevance + gate, f"{of_relevance:,} M"),
            Part(
                *("marks of touched rows", rows, lists * (u + m)),
                f"{lists} (u + M)" + ("" if self.engine == "cuda" else " for each thread"),
            ),
            Part(
                *("clicks", "host", 12 * c + (16 + share) * u + (8 + 8 * divided) * m),
                f"12 c + {16 + share} u + {8 + 8 * divided} M",
            ),
            samples,
            Part(
                "best epoch, and the last one",
                "host",
                2 * (values * (self.user_tables * u + m) + (values + NUMBER if gate else 0)),
                f"2 × 4 d ({self.user_tables} u + M)",
            ),
        ]

    def _row(self) -> tuple[int, int]:
        """Bytes of a row of relevance and of exposure: 4 d × 3, values and two moments.

        The cuda engine keeps the sums of gradients beside them, three where it looks ahead. Rows
        are padded to whole vectors or sectors.
        """
        if self.engine == "cpu":
            row = 3 * NUMBER * whole(self.dim, NUMBER)
            return row, row
        width = NUMBER * (-(-self.dim // 8) * 8)
        return (6 if self.strategy in LOOKS_AHEAD else 4) * width, 4 * width

    def total(self, where: Where) -> int:
        """Bytes of a rank's memory of this kind."""
        return sum(part.n_bytes for part in self.memory() if part.where == where)

    # a step ------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps of an epoch, C/b."""
        return -(-self.clicks // self.batch_size)

    @property
    def touched(self) -> float:
        """Distinct items of a step, at most: M · (1 − (1 − 1/M)^(b(1 + k))), if all are as likely.

        Clicked items are never as likely, so fewer are touched.
        """
        return self._distinct(self.batch_size * (1 + self.negatives))

    def _distinct(self, pairs: float) -> float:
        if self.items == 1:
            return 1.0
        return -self.items * expm1(min(pairs, exp(80)) * log1p(-1 / self.items))

    @property
    def sums_of_items(self) -> int:
        """How often a step adds up item rows: look-ahead and validation gradient do it too."""
        return 3 if self.strategy in LOOKS_AHEAD else 1

    @property
    def sums(self) -> int:
        """All-reduces of a step; the gate has one of its own, and `joint` adds it to the items."""
        gate = self.strategy in ("alternate", *LOOKS_AHEAD)
        return self.sums_of_items + int(gate)

    @property
    def step_bytes(self) -> float:
        """Bytes that a rank gives to the all-reduces of a step: 4 d × rows × sums, and the gate."""
        if self.ranks == 1:
            return 0.0
        gate = NUMBER * (self.dim + 1) if self.strategy in LEARNS else 0
        return NUMBER * self.dim * self.touched * self.sums_of_items + gate

    @property
    def told_bytes(self) -> float:
        """Bytes by which a rank tells the others the items of a step.

        On the host each rank sends its items, and how often it has each, to every other rank; on
        cards they add up a mark for each item of the catalogue.
        """
        if self.ranks == 1:
            return 0.0
        if self.engine == "cuda":
            return float(self.items)
        return 16 * self._distinct(self.batch_size * (1 + self.negatives) / self.ranks)

    def exchange_seconds(self, network: Network) -> float:
        """Seconds of the exchange of a step among the network's ranks, at least.

        The items of a step are told many steps at a time, so that messages count for little.
        """
        there = replace(self, ranks=network.ranks)
        if self.engine == "cuda":
            return network.seconds(there.sums, there.step_bytes + there.told_bytes)
        return network.seconds(there.sums, there.step_bytes, there.told_bytes)

    def rotated_bytes(self) -> float:
        """Bytes that a rank would send in an epoch if blocks of items went round instead.

        Every block of M/W items, with moments, visits every rank once: 4 d × 3 × M.
        """
        return NUMBER * self.dim * 3 * self.items


@dataclass(frozen=True)
class Rank:
    """How fast a rank is: its pairs a second, and the seconds that a step of several ranks adds.

    Ranks on cards launch the kernels of a step one by one.
    """

    pairs_a_second: float
    overhead: float = 0.0


def speed_up(training: Training, network: Network, rank: Rank) -> float:
    """How much faster than one rank the network's are: t₁ / (t₁/W + exchange + overhead)."""
    alone = training.batch_size * (1 + training.negatives) / rank.pairs_a_second
    return alone / (alone / network.ranks + training.exchange_seconds(network) + rank.overhead)


def most_that_pay(training: Training, network: Network, rank: Rank) -> int:
    """Most ranks on such a network that compute for at least half of a step; 1: two do not."""
    several = (replace(network, ranks=ranks) for ranks in range(2, PARTITIONS + 1))
    paying = [n.ranks for n in several if speed_up(training, n, rank) >= n.ranks / 2]
    return max(paying, default=1)


def rotating_speed_up(training: Training, network: Network, rank: Rank) -> float:
    """The same for rotating blocks: t₁ / (t₁/W + rotation), t₁ of an epoch."""
    alone = training.clicks * (1 + training.negatives) / rank.pairs_a_second
    hops = training.rotated_bytes() / network.bytes_a_second + network.ranks * network.latency
    return alone / (alone / network.ranks + hops)


def document(training: Training) -> dict[str, object]:
    """The whole plan as plain data."""
    return {
        "ranks": training.ranks,
        "users_of_a_rank": training.own_users,
        "clicks_of_a_rank": training.own_clicks,
        "memory_of_a_rank": [vars(part) for part in training.memory()],
        "host_bytes": training.total("host"),
        "card_bytes": training.total("card"),
        "steps_of_an_epoch": training.steps,
        "items_of_a_step": training.touched,
        "sums_of_a_step": training.sums if training.ranks > 1 else 0,
        "bytes_of_a_step": training.step_bytes,
        "told_bytes_of_a_step": training.told_bytes,
        "bytes_of_an_epoch": training.steps * training.step_bytes,
        "rotated_bytes_of_an_epoch": training.rotated_bytes(),
        "seconds_of_exchange": {
            network.name: {
                "step": training.exchange_seconds(network),
                "epoch": training.steps * training.exchange_seconds(network),
            }
            for network in (NETWORKS if training.ranks > 1 else ())
        },
    }
