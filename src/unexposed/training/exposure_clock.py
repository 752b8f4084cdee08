"""An exposure that learns on its own clock: one step of α after every epoch of relevance.

The step uses the gradient of the whole epoch's expected loss, by blocks of users, so neither the
draws nor the users that a batch happens to hold add noise to it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.share import before
from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.engine.objective import Engine
from unexposed.errors import InputError
from unexposed.maths import item_level
from unexposed.maths.exposure import Table
from unexposed.maths.item_level import FORMS, Block, Factors
from unexposed.maths.relevance import Relevance
from unexposed.ranking.blocks import parts
from unexposed.sampling.samples import Drawing
from unexposed.sampling.validation import ValidationSet
from unexposed.training.loop import Trainee
from unexposed.workers import Workers, in_all, summed

PAIRS_A_STEP = 20_000_000  # of a larger log, a step looks at a random part of the users


class ExposureClock:
    """The numbers α of an item-level exposure, with their moments.

    `start` is α before the first step, `share` the log(n / max n) that its form knows. Training
    draws from the clicks `learned_from` by `drawing`. Pairs whose m is `given`, ordered by user,
    say nothing of α. A look-ahead moves every table of `relevance`.
    """

    def __init__(
        self,
        form: item_level.Form,
        start: NDArray[np.float64],
        share: NDArray[np.float64],
        guide: ValidationSet,
        *,
        learned_from: Clicks,
        drawing: Drawing,
        given: tuple[NDArray[Any], NDArray[Any]],
        relevance: Relevance,
        on_training: bool,
        learning_rate: float,
        weight_decay: float,
        rng: np.random.Generator,
        workers: Workers | None = None,
    ) -> None:
        self._form, self._start, self._share, self._guide = FORMS[form], start, share, guide
        self._clicks, self._drawing, self._given = learned_from, drawing, given
        self._relevance, self._on_training, self._rng = relevance, on_training, rng
        self._rates, self._workers = (learning_rate, weight_decay), workers
        self._state: dict[str, NDArray[Any]] = {
            "alpha": start.copy(),
            "first": np.zeros_like(start),
            "second": np.zeros_like(start),
            "steps": np.zeros(1, dtype=np.int64),
        }

    def table(self) -> Table:
        """m of each item."""
        return self._form.table(self._state["alpha"], self._share).astype(np.float32)

    def state(self) -> dict[str, NDArray[Any]]:
        return {f"exposure.{name}": array for name, array in self._state.items()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        for name, array in self._state.items():
            array[...] = state[f"exposure.{name}"]

    def step(self, factors: Factors) -> Table:
        """Move α by one step of Adam at these factors; return the new table."""
        state, (learning_rate, weight_decay) = self._state, self._rates
        gradient = self._form.carry(self._on_items(factors), state["alpha"], self._share)
        # as if the loss of every validation pair held decay/2·|α − start|²: an item that the guide
        # says nothing of stays where it starts
        gradient += weight_decay * self._guide.n_pairs * (state["alpha"] - self._start)
        state["steps"] += 1
        number = int(state["steps"][0])
        state["first"] += (1 - BETA1) * (gradient - state["first"])
        state["second"] += (1 - BETA2) * (gradient**2 - state["second"])
        scale = np.sqrt(state["second"] / (1 - BETA2**number)) + EPSILON
        state["alpha"] -= learning_rate * state["first"] / (1 - BETA1**number) / scale
        return self.table()

    def beside(self, trainee: Trainee, engine: Engine) -> Trainee:
        """A training whose exposure makes a step after every epoch."""

        def learn() -> None:
            vectors = self._relevance.vectors(self._relevance.kept(engine.parameters()))
            if vectors is None:
                raise InputError(
                    "an exposure that is the same for all users is learned with relevance=dot: use "
                    "exposure_model=gated"
                )
            engine.give_exposure(self.step(Factors(*vectors)))

        def epoch() -> float:
            loss = trainee.epoch()
            learn()
            return loss

        def steps() -> Iterator[float]:
            yield from trainee.steps()
            learn()

        def restore(state: dict[str, NDArray[Any]]) -> None:
            assert trainee.memory is not None
            trainee.memory.restore(state)
            self.restore(state)
            engine.give_exposure(self.table())

        memory = trainee.memory
        if memory is not None:
            before = memory.state
            memory = replace(memory, state=lambda: before() | self.state(), restore=restore)
        return replace(
            trainee,
            steps=steps,
            epoch=epoch,
            parameters=lambda: trainee.parameters() | {"exposure": self.table()},
            memory=memory,
        )

    def _on_items(self, factors: Factors) -> NDArray[np.float64]:
        """∂/∂m of each item, summed over workers; a part of the users stands for all of them."""
        exposure, taken = self.table(), self._users()
        blocks = self._blocks(taken)
        if self._on_training:
            found = (item_level.train_gradient(factors, exposure, block) for block in blocks)
        else:
            guide = self._guide
            direction = item_level.validation_gradient(
                factors, guide.users, guide.items, guide.relevant
            )
            direction = direction._replace(items=summed(direction.items, self._workers))
            for table in self._relevance.tables.values():
                if table.rows != "shared" and table.fixed is not None:
                    getattr(direction, table.rows)[:, table.fixed] = 0.0  # a look-ahead stays there
            direction = direction._replace(items=self._relevance.along(direction.items))
            narrow = Factors(*(table.astype(factors.users.dtype) for table in direction))
            found = (
                item_level.hypergradient(factors, narrow, exposure, b) for b in self._blocks(taken)
            )
        total = np.zeros(self._clicks.n_items)
        for part in found:
            total += part
        n_users = int(np.count_nonzero(self._clicks.user_counts))
        each = in_all(n_users, self._workers) / in_all(len(taken), self._workers)
        return summed(total, self._workers) * each

    def _users(self) -> NDArray[Any]:
        """The users of a step: all with clicks, or as many of them as it may look at."""
        clicked, share = self._clicks.user_counts > 0, self._clicks.share
        with_clicks = np.flatnonzero(clicked)
        n, most = in_all(len(with_clicks), self._workers), PAIRS_A_STEP // self._clicks.n_items
        most = max(1, most)
        if n <= most:
            return with_clicks
        taken = np.sort(self._rng.choice(n, most, replace=False))  # of the users with clicks
        if share is None:
            return with_clicks[taken]
        own = clicked.astype(np.int64), share.users, share.n_users
        places = before(*own, self._workers)
        return with_clicks[np.isin(places[with_clicks], taken)]

    def _blocks(self, taken: NDArray[Any]) -> Iterator[Block]:
        clicks, (users_given, items_given) = self._clicks, self._given
        start_given = np.searchsorted(users_given, np.arange(clicks.n_users + 1))
        for part in parts(len(taken), clicks.n_items):
            users = taken[part]
            clicked = _pairs(users, clicks.user_start, clicks.items)
            given = _pairs(users, start_given, items_given) if len(users_given) else None
            weight = self._drawing.expected_weight(clicks, users)
            if self._relevance.counted is not None:
                weight = weight * self._relevance.counted
            yield Block(users, clicked, weight, given)


def _pairs(
    users: NDArray[Any], start: NDArray[Any], items: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The row and the item of each pair of these users; `start` is where a user's items begin."""
    counts = start[users + 1] - start[users]
    first = np.repeat(start[users], counts)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.arange(len(users)), counts), items[first + number]
