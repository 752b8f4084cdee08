"""Search of ids and titles: every name in one text, the most clicked first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

END = "\n"  # between two names; none holds it


@dataclass(frozen=True, eq=False)
class Names:
    """Names in the order in which a search finds them.

    A search for a piece of text runs over one long text at the speed of memory, and stops after
    the first few that it finds.
    """

    text: str
    start: NDArray[np.int64]  # of each name in the text

    @staticmethod
    def of(names: Sequence[str]) -> "Names":
        folded = [name.casefold().replace(END, " ") for name in names]
        lengths = np.fromiter((len(name) + 1 for name in folded), np.int64, len(folded))
        return Names(END + END.join(folded), 1 + np.cumsum(lengths) - lengths)

    def beginning(self, query: str, limit: int) -> list[int]:
        """The places of the first names that begin with the query."""
        return self._places(END + self._folded(query), limit)

    def holding(self, query: str, limit: int) -> list[int]:
        """The places of the first names that hold the query."""
        return self._places(self._folded(query), limit)

    def _folded(self, query: str) -> str:
        return query.casefold().replace(END, " ")

    def _places(self, wanted: str, limit: int) -> list[int]:
        found: list[int] = []
        for at in self._occurrences(wanted):
            found.append(at)
            if len(found) == limit:
                break
        return found

    def _occurrences(self, wanted: str) -> Iterator[int]:
        """The place of each name with this in it, once."""
        inside = 1 if wanted.startswith(END) else 0  # the end of the name before is found with it
        begin = self.text.find(wanted)
        while begin >= 0:
            place = int(np.searchsorted(self.start, begin + inside, side="right")) - 1
            yield place
            if place + 1 == len(self.start):
                return
            begin = self.text.find(wanted, int(self.start[place + 1]) - inside)
