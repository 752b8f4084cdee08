"""Tables of what several processes cost, as measured."""

from typing import Any

from unexposed.cards import NONE
from unexposed.report.tables import Table, cells, code


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
                f"{of['bytes_a_step'] / 1e6:,.3f}",
            )
        )
    heads = ["", "in a group", "through the exchange", "ms more a step", "ms of sums"]
    heads += ["MB a step"]
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
                f"{of['bytes_a_step'] / 1e6:,.3f}",
            )
        )
    heads = ["", "from one process", "from the reference", "`fit`, from the CPU engine"]
    heads += ["the same in lists", "MB a step"]
    note = (
        "Relative distance of parameters on the same samples, the reference in float64. `fit`: "
        "a whole training, against one process on the CPU."
    )
    return Table("sharing-card", "Two ranks on one card", heads, rows, [note], words=1)


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
