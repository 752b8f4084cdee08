"""A newer model at the same place is loaded beside the one that serves, and swapped in whole."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from unexposed.errors import InputError, plain
from unexposed.serve.held import Held, Source, read

SECONDS = 1.0  # between two looks at the folder

Say = Callable[[str], None]
Number = Callable[[str], int]  # the generation of the model with this checksum


class Counter:
    """Numbers models in the order in which they come."""

    def __init__(self) -> None:
        self.checksum, self.generation = "", 0

    def __call__(self, checksum: str) -> int:
        if checksum != self.checksum:
            self.checksum, self.generation = checksum, self.generation + 1
        return self.generation


class Current:
    """The model that serves now. A request takes `held` once and keeps it to its end."""

    def __init__(self, source: Source, *, say: Say, number: Number | None = None) -> None:
        self._source, self._say, self._number = source, say, number or Counter()
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="loading")
        self._seen = source.identity()
        self.held = self._numbered(read(source))

    async def watch(self, seconds: float = SECONDS) -> None:
        """Look for another model for ever."""
        while True:
            await asyncio.sleep(seconds)
            identity = self._source.identity()
            if identity is None or identity == self._seen:  # none: it is being replaced
                continue
            await asyncio.get_running_loop().run_in_executor(self._loading, self.reload)

    def reload(self) -> None:
        """Swap in what lies there now; the old model stays if that is not a whole model."""
        folder, self._seen = self._source.folder, self._source.identity()
        try:
            found = read(self._source)
        except InputError as error:
            self._say(f"the new model is refused, the old one stays: {plain(error)}")
        except Exception as error:  # whatever it is, requests go on
            self._say(f"{folder} could not be loaded, the old model stays: {plain(repr(error))}")
        else:
            if found.checksum != self.held.checksum:
                self.held = self._numbered(found)
                self._say(f"{folder} holds a new model, generation {self.held.generation}")

    def _numbered(self, found: Held) -> Held:
        return replace(found, generation=self._number(found.checksum))
