"""The table of what the service answers: the app routes by it, its description is made of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from unexposed.errors import InputError
from unexposed.serve import answers, schemas
from unexposed.serve.answers import Answer
from unexposed.serve.batches import Work
from unexposed.serve.held import Held, Options, Role
from unexposed.serve.parameters import Missing, Parameter

MOST_K, MOST_IDS, MOST_QUERY = 1_000, 1_000, 200
MOST_ENTRIES = 50_000  # items of all lists of an answer

Given = dict[str, Any]
Handler = Callable[[Work, Held, Given], Awaitable[Answer]]


@dataclass(frozen=True)
class Call:
    """One address of the service."""

    method: str  # GET or POST
    path: str
    about: str
    parameters: tuple[Parameter, ...]
    schema: dict[str, Any]  # of the answer
    answer: Handler


async def health(work: Work, held: Held, given: Given) -> Answer:
    del work, given
    return answers.health(held)


async def recommend(work: Work, held: Held, given: Given) -> Answer:
    lists = await _lists(work, held, [given["user"]], given)
    return lists[0]


async def recommend_many(work: Work, held: Held, given: Given) -> Answer:
    size = len(given["users"]) * given["k"]
    if size > MOST_ENTRIES:
        raise InputError(
            f"{len(given['users']):,} users with k = {given['k']:,} make {size:,} items: ask for "
            f"at most {MOST_ENTRIES:,} at once"
        )
    return {"lists": await _lists(work, held, given["users"], given)}


async def _lists(work: Work, held: Held, users: list[Any], given: Given) -> list[Answer]:
    rows = [held.index(user, "user") for user in users]
    if given["unknown"] == "refuse":
        for user, row in zip(users, rows, strict=True):
            if row < 0:
                held.known(user, "user")  # says which one
    nobody = held.model.clicks.n_users  # stands for an unknown user
    if min(rows, default=0) < 0:
        await work.apart(lambda: held.average)  # so that others do not wait for it
    found = await work.lists(
        held, [nobody if row < 0 else row for row in rows], given["k"], _options(held, given)
    )
    return [
        answers.listed(held, _own(held, user, row), one, known=row >= 0)
        for user, row, one in zip(users, rows, found, strict=True)
    ]


def _own(held: Held, user: Any, row: int) -> Any:
    """The user's id as the model knows it."""
    return user if row < 0 else held.model.user_ids.values[[row]].tolist()[0]


def _options(held: Held, given: Given) -> Options:
    minimum = given["minimum_exposure"]
    if minimum > 0 and not held.has_exposure:
        name = held.model.method.name
        raise InputError(f"{name} has no exposure model, so it cannot apply minimum_exposure")
    hide = not given.get("show_clicked", False)
    return Options(hide, float(minimum), float(given["popularity_penalty"]))


async def similar(work: Work, held: Held, given: Given) -> Answer:
    if (given["item"] is None) == (given["user"] is None):
        raise InputError("give item or user: one of the two")
    role: Role = "user" if given["item"] is None else "item"
    return await work.apart(partial(answers.similar, held, role, given[role], given["k"]))


async def exposure(work: Work, held: Held, given: Given) -> Answer:
    return await work.apart(partial(answers.exposure, held, given["user"], given["item"]))


async def fold_in(work: Work, held: Held, given: Given) -> Answer:
    clicks = list(dict.fromkeys(given["clicks"]))
    indices = [held.index(raw, "item") for raw in clicks]
    known = sorted({index for index in indices if index >= 0})
    unknown = [raw for raw, index in zip(clicks, indices, strict=True) if index < 0]
    if not held.folds_in:
        raise InputError(f"{held.model.method.name} cannot fold in users: fit it again")
    options = _options(held, given)
    if not clicks:
        raise InputError("clicks is empty: give the ids of clicked items")
    if not known:
        raise Missing(f"the model knows none of the {len(clicks)} clicked items")
    items = np.array(known, dtype=np.int32)
    found = await work.apart(partial(held.list_for, items, given["k"], options))
    return answers.folded_in(held, found, len(known), unknown)


async def user(work: Work, held: Held, given: Given) -> Answer:
    return await work.apart(partial(answers.user, held, given["user"]))


async def search(work: Work, held: Held, given: Given) -> Answer:
    return await work.apart(
        partial(answers.search, held, given["q"].strip(), given["kind"], given["limit"])
    )


K = Parameter("k", "integer", "how many, at most", 10, least=1, most=MOST_K)
PENALTY = Parameter(
    "popularity_penalty",
    "number",
    "rank by score − penalty · log(1 + clicks of the item)",
    0,
    least=0,
    most=1_000,
)
MINIMUM = Parameter(
    "minimum_exposure",
    "number",
    "only items that the user was shown at least this likely",
    0,
    least=0,
    most=1,
)
SHOW_CLICKED = Parameter("show_clicked", "boolean", "list clicked items, too", False)
UNKNOWN = Parameter(
    "unknown",
    "choice",
    "users the model never saw: refuse them, or give them the popular list",
    "refuse",
    choices=("refuse", "popular"),
)
USER = Parameter("user", "id", "raw id of a user")
ITEMS = Parameter("item", "ids", "raw ids of items, each as item=ID", most=MOST_IDS)
OF_LIST = (K, PENALTY, MINIMUM)

CALLS = (
    Call("GET", "/health", "That the service is ready, and its model.", (), schemas.HEALTH, health),
    Call(
        "GET",
        "/recommend",
        "The best items for a user, best first.",
        (USER, *OF_LIST, SHOW_CLICKED, UNKNOWN),
        schemas.LIST,
        recommend,
    ),
    Call(
        "POST",
        "/recommend",
        "The best items for each of many users.",
        (
            Parameter("users", "ids", "raw ids of users", most=MOST_IDS),
            *OF_LIST,
            SHOW_CLICKED,
            UNKNOWN,
        ),
        schemas.LISTS,
        recommend_many,
    ),
    Call(
        "GET",
        "/similar",
        "The items most like an item, or the users most like a user, by the angle of vectors.",
        (
            Parameter("item", "id", "raw id of an item", None),
            Parameter("user", "id", "raw id of a user", None),
            K,
        ),
        schemas.SIMILAR,
        similar,
    ),
    Call(
        "GET",
        "/exposure",
        "How likely a user would like each item, and how likely it was shown.",
        (USER, ITEMS),
        schemas.EXPOSURE,
        exposure,
    ),
    Call(
        "POST",
        "/fold-in",
        "The best items for somebody who clicked these; the model does not change.",
        (Parameter("clicks", "ids", "raw ids of clicked items", most=MOST_IDS), *OF_LIST),
        schemas.FOLDED_IN,
        fold_in,
    ),
    Call("GET", "/user", "What a user clicked.", (USER,), schemas.USER, user),
    Call(
        "GET",
        "/search",
        "Items or users whose id begins with a text or whose title holds it, most clicked first.",
        (
            Parameter("q", "text", "a text; without one, the most clicked", "", most=MOST_QUERY),
            Parameter("kind", "choice", "what to search", "item", choices=("item", "user")),
            Parameter("limit", "integer", "how many, at most", 20, least=1, most=100),
        ),
        schemas.SEARCH,
        search,
    ),
)
