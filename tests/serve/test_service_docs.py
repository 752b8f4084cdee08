"""The requests of docs/service.md get the answers that the page shows."""

import re
import shlex
from pathlib import Path

from starlette.testclient import TestClient

from serve_world import app, model, write_titles
from unexposed.serve.routes import CALLS

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ curl (.+)\n(.+)$", PAGE, flags=re.MULTILINE)


def test_every_request_of_the_page_gets_the_answer_shown(tmp_path):
    model("umf").save(tmp_path / "model")
    titles = write_titles(tmp_path)
    assert len(SHOWN) == PAGE.count("$ curl") >= 5
    with TestClient(app(tmp_path / "model", titles=titles)) as client:
        for line, said in SHOWN:
            *options, address = shlex.split(line)
            path = address.removeprefix("http://127.0.0.1:8000")
            answer = client.post(path, content=options[1]) if options else client.get(path)
            wanted = ".*".join(re.escape(part) for part in said.split("…"))
            assert re.fullmatch(wanted, answer.text), f"{line}\n{answer.text}"


def test_the_page_names_every_address():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {tuple(re.match(r"\| `(\w+) ([\w/-]+)", row).groups()) for row in rows}
    assert named == {(call.method, call.path) for call in CALLS}
