"""Tables of the paper model of many ranks: sizes from `training/plan.py`, speeds as measured."""

from dataclasses import replace
from typing import Any

from unexposed.cards import NONE
from unexposed.report.tables import Table, cells, code
from unexposed.training.plan import (
    ETHERNET,
    NVLINK,
    Hardware,
    Network,
    Rank,
    Training,
    most_that_pay,
    rotating_speed_up,
    speed_up,
)

LARGE = Training(10**8, 10**6, 10**10, 1, 64, 1 << 16, 10, "bilevel")
ENGINES: dict[Network, Hardware] = {NVLINK: "cuda", ETHERNET: "cpu"}
STRATEGIES: dict[str, Any] = {"ubo": "bilevel", "umf": None}
CORES = 16  # of a machine
ONE_CORE = {
    "ubo": "ns a sample, one core: and the step ahead, with 512 validation pairs",
    "umf": "ns a sample, one core: UMF",
}
Speeds = dict[str, dict[Network, Rank]]  # by method


def speeds(on_card: dict[str, Any], on_cpu: dict[str, Any], ranks: dict[str, Any]) -> Speeds:
    """Ranks as measured: a card with the exchange's overhead, and a machine of measured cores."""
    cards = {row["name"]: row["samples_a_second"] for row in on_card["figures"]}
    cores = {row["what"]: row["median"] for row in on_cpu["table"]}
    more = {name: of["seconds_more_a_step"] for name, of in ranks["one_rank"].items()}
    return {
        method: {
            NVLINK: Rank(cards[f"{method}, 1e+09 clicks"], more[f"{method}, large batches"]),
            ETHERNET: Rank(CORES * 1e9 / cores[ONE_CORE[method]]),
        }
        for method in STRATEGIES
    }


def memory() -> Table:
    """Gigabytes of a rank, in one process, on 8 cards and on 16 machines."""
    rows = []
    for method, strategy in STRATEGIES.items():
        for what, ranks, engine in (
            ("one card", 1, "cuda"),
            ("8 cards", 8, "cuda"),
            ("one machine", 1, "cpu"),
            ("16 machines", 16, "cpu"),
        ):
            plan = replace(LARGE, ranks=ranks, strategy=strategy, engine=engine)
            held = {part.name: part.n_bytes for part in plan.memory()}
            rest = plan.total("host") + plan.total("card") - held["user rows, moments"]
            rows.append(
                cells(
                    code(method),
                    what,
                    *(
                        _gigabytes(n)
                        for n in (
                            held["user rows, moments"],
                            rest,
                            plan.total("card"),
                            plan.total("host"),
                        )
                    ),
                )
            )
    heads = ["", "", "user rows, GB", "the rest, GB", "on the card, GB", "on the host, GB"]
    return Table("scaling-memory", "Memory of a rank", heads, rows, [_sizes(LARGE)], words=2)


def exchange(of: Speeds) -> Table:
    """A step by items and batch: what travels, how long, and whether more ranks are faster."""
    rows = []
    for method, items in (("ubo", 10**4), ("ubo", 10**5), ("ubo", 10**6), ("umf", 10**6)):
        for batch_size in (1 << 12, 1 << 16, 1 << 20):
            plan = replace(
                LARGE, ranks=8, items=items, batch_size=batch_size, strategy=STRATEGIES[method]
            )
            parts = [code(method), f"{items:,}", f"{batch_size:,}", f"{plan.step_bytes / 1e6:,.1f}"]
            for network, engine in ENGINES.items():
                plan, rank = replace(plan, engine=engine), of[method][network]
                alone = batch_size * (1 + plan.negatives) / rank.pairs_a_second
                parts += [
                    f"{1e3 * alone:,.2f}",
                    f"{1e3 * plan.exchange_seconds(network):,.2f}",
                    f"{speed_up(plan, network, rank):.2f}",
                    f"{most_that_pay(plan, network, rank)}",
                ]
            rows.append(cells(*parts))
    heads = ["", "items", "batch", "MB a step"]
    for what in ("8 cards", "16 machines"):
        heads += [f"one of {what}, ms", "exchange, ms", f"{what} ×", "pays up to"]
    cards, machines = ([of[method][n] for method in STRATEGIES] for n in (NVLINK, ETHERNET))
    note = (
        f"{LARGE.negatives} items drawn for each click, dim {LARGE.dim}. One card: "
        f"{cards[0].pairs_a_second / 1e6:,.0f} million pairs a second with ubo, "
        f"{cards[1].pairs_a_second / 1e6:,.0f} with umf, measured; of several cards each adds "
        f"{1e3 * cards[0].overhead:.1f} and {1e3 * cards[1].overhead:.1f} ms a step, measured "
        f"with one. One machine of {CORES} cores as fast as the measured one: "
        f"{machines[0].pairs_a_second / 1e6:,.0f} and {machines[1].pairs_a_second / 1e6:,.0f}."
    )
    return Table("scaling-exchange", "Synchronous exchange", heads, rows, [note])


def rotating(of: Speeds) -> Table:
    """An epoch with synchronous exchange, and with blocks of items that go round."""
    rows = []
    for method, strategy in STRATEGIES.items():
        for network, engine in ENGINES.items():
            plan = replace(LARGE, ranks=network.ranks, strategy=strategy, engine=engine)
            rank = of[method][network]
            rows.append(
                cells(
                    code(method),
                    network.name,
                    f"{plan.steps * plan.step_bytes / 1e12:,.1f}",
                    f"{plan.rotated_bytes() / 1e12:,.4f}",
                    f"{speed_up(plan, network, rank):.2f}",
                    f"{rotating_speed_up(plan, network, rank):.1f}",
                )
            )
    heads = ["", "", "synchronous, TB", "rotating, TB", "synchronous ×", "rotating ×"]
    return Table("scaling-rotating", "Rotating blocks", heads, rows, [_sizes(LARGE)], words=2)


def on_a_card(document: dict[str, Any]) -> Table:
    """A group of one rank against none, and two ranks on one card against one process."""
    rows = []
    for name, of in document["one_rank"].items():
        turns = of["group_over_none_by_turn"]
        rows.append(
            cells(
                name,
                f"× {of['group_over_none']:.3f} ({min(turns):.2f} … {max(turns):.2f})",
                f"× {of['exchange_over_none']:.2f}",
                f"{1e3 * of['seconds_more_a_step']:.2f}",
                f"{1e3 * of['seconds_of_sums_a_step']:.2f}",
                *_megabytes(of),
            )
        )
    heads = ["", "in a group", "through the exchange", "ms more a step", "ms of sums"]
    heads += ["MB a step", "planned, at most"]
    sizes = {of["batch_size"] for of in document["one_rank"].values()}
    note = (
        f"`{document['command']}`: {document['card']}, torch {document['torch']}; batches of "
        f"{' and '.join(f'{size:,}' for size in sorted(sizes))} clicks, one item drawn for each. "
        "In brackets: single turns."
    )
    return Table("scaling-card", "One rank over NCCL", heads, rows, [note], words=1)


def sharing_a_card(document: dict[str, Any]) -> Table:
    """Two ranks on one card over gloo, against one process: the steps, and a whole training."""
    fits = document["fit_of_two_ranks"]
    rows = []
    for name, of in document["two_ranks_on_one_card"].items():
        whole = fits.get(name)
        rows.append(
            cells(
                code(name),
                f"{of['from_one_process']:.0e}",
                f"{of['from_reference']:.0e}",
                NONE if whole is None else f"{whole['from_one_process_on_the_cpu']:.0e}",
                NONE if whole is None else f"{100 * whole['same_rows_of_lists']:g} %",
                *_megabytes(of),
            )
        )
    heads = ["", "from one process", "from the reference", "`fit`, from the CPU engine"]
    heads += ["the same in lists", "MB a step", "planned, at most"]
    note = (
        "Relative distance of parameters on the same samples, the reference in float64. `fit`: "
        "a whole training, against one process on the CPU."
    )
    return Table("sharing-card", "Two ranks on one card", heads, rows, [note], words=1)


def _megabytes(of: dict[str, Any]) -> list[str]:
    return [f"{of['bytes_a_step'] / 1e6:,.3f}", f"{of['planned_bytes_a_step'] / 1e6:,.3f}"]


def _sizes(plan: Training) -> str:
    return (
        f"{plan.users:,} users, {plan.items:,} items, {plan.clicks:,} clicks, dim {plan.dim}, "
        f"batches of {plan.batch_size:,}, {plan.negatives} items drawn for each click."
    )


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f}"


def on_cores(found: dict[str, Any]) -> Table:
    """Steps of ranks on the two cores of one machine, over gloo."""
    rows = []
    for batch_size, by_ranks in found["batches"].items():
        for method in ("mf", "ubo"):
            for ranks, own in by_ranks.items():
                one = own[method]
                alone, told = ranks == "1", [NONE, NONE]
                if not alone:
                    told = [f"{one['exchange'] * 1e3:.1f}", f"{one['bytes'] / 1e3:.0f}"]
                rows.append(
                    cells(
                        code(method),
                        f"{int(batch_size):,}",
                        ranks,
                        f"{one['step'] * 1e3:.1f}",
                        *told,
                        f"{one['memory'] / 1e6:.0f}",
                        f"× {one['group of one']:.3f}" if alone else NONE,
                    )
                )
    heads = ["", "batch", "ranks", "step, ms", "exchange, ms", "kB a step", "MB", "in a group"]
    note = (
        "`python benchmarks/scaling.py`: two cores, so four ranks wait for each other; MB: arrays "
        "of a rank's engine; in a group: CPU time of one rank in a process group, beside none."
    )
    return Table("ranks-on-cores", "Ranks on two cores", heads, rows, [note], words=1)


def whole_log(found: dict[str, Any]) -> Table:
    """A large log from a folder to lists, by one process and by ranks."""
    ranks = found["asked"]["ranks"]
    rows = []
    for command in ("fit", "recommend"):
        alone, divided = found[f"{command}, 1"], found[f"{command}, {ranks}"]
        most = max(divided["peaks"])
        rows.append(
            cells(
                code(command),
                f"{alone['peaks'][0]:.2f}",
                f"{most:.2f}",
                f"{100 * most / alone['peaks'][0]:.0f} %",
                f"{alone['seconds']:.0f}",
                f"{divided['seconds']:.0f}",
            )
        )
    clicks, users = int(found["asked"]["clicks"]), int(found["asked"]["users"])
    note = (
        f"`python benchmarks/divided_log.py`: {clicks:,} clicks of {users:,} users in 16 Parquet "
        f"files, {found['asked']['method']}, dim 64, two epochs on two cores. "
        f"{100 * found['same']:.4f} % of the listed items are the same."
    )
    heads = ["", "one, GiB", f"each of {ranks}, GiB", "share", "one, s", f"{ranks} ranks, s"]
    return Table("whole-log", "A log from folder to lists", heads, rows, [note], words=1)
