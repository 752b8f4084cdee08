"""Reading the original files, finding them, fetching them, and refusing what is not them."""

import gzip
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from unexposed.data import datasets
from unexposed.data.clicks import Ratings
from unexposed.data.datasets import DATASETS, Dataset, RatingData, load, locate, status
from unexposed.data.ids import Ids
from unexposed.errors import InputError


def real(name: str) -> RatingData:
    """A real data set, or a skipped test where it is not at hand."""
    if locate(name) is None:
        pytest.skip(f"{name} is not here: put its files under $UNEXPOSED_DATA")
    return load(name, download=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no other place where data sets could be."""
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unexposed"


# The real files


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "n_users", "n_items", "n_logged", "n_random", "n_clicks"),
    [
        ("coat", 290, 300, 6_960, 4_640, 1_715 + 190),
        ("yahoo_r3", 15_400, 1_000, 311_704, 54_000, 112_570 + 12_507),
        ("ml_100k", 943, 1_682, 100_000, None, 55_375),
    ],
)
def test_a_real_data_set_has_the_published_counts(
    name, n_users, n_items, n_logged, n_random, n_clicks
):
    data = real(name)
    assert len(data.logged) == n_logged
    assert (len(data.random) if data.random else None) == n_random
    assert len(data.logged.clicks(threshold=4)) == n_clicks
    for part in filter(None, (data.logged, data.random)):
        assert (len(part.user_ids), len(part.item_ids)) == (n_users, n_items)
        assert part.values.min() >= 1
        assert part.values.max() <= 5
        keys = part.users.astype(np.int64) * len(part.item_ids) + part.items
        assert (np.diff(keys) > 0).all()


# Small files in the layout of the real ones


def write_amazon(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ratings_CDs_and_Vinyl.csv").write_text(text)
    return folder


@pytest.mark.parametrize("end", ["", ",1383696000"])
def test_amazon_ids_are_in_the_order_of_the_file_and_the_later_rating_counts(tmp_path, end):
    rows = ("zoe,B2,5.0", "abe,B1,3.0", "zoe,B1,1.0", "zoe,B2,2.0")
    folder = write_amazon(tmp_path, "".join(f"{row}{end}\n" for row in rows))
    ratings = DATASETS["amazon_cds"].read(folder).logged
    assert ratings.user_ids == Ids.of(["zoe", "abe"])
    assert ratings.item_ids == Ids.of(["B2", "B1"])
    assert ratings.users.tolist() == [0, 0, 1]
    assert ratings.items.tolist() == [0, 1, 1]
    assert ratings.values.tolist() == [2, 1, 3]


def write_yahoo(folder: Path, train: str) -> Path:
    for part, text in {"train": train, "test": "2\t3\t1\n"}.items():
        (folder / f"ydata-ymusic-rating-study-v1_0-{part}.txt").write_text(text)
    return folder


def write_movielens(folder: Path, items: str) -> Path:
    (folder / "u.data").write_text("1\t1\t5\t881250949\n")
    (folder / "u.item").write_text(items)
    return folder


def write_coat(folder: Path, row: str) -> Path:
    (folder / "train.ascii").write_text(f"{'0 ' * 300}\r\n" * 289 + row)
    return folder


@pytest.mark.parametrize(
    ("name", "write", "text", "told"),
    [
        *(
            ("amazon_cds", write_amazon, f"u,i,5.0\n{line}\nv,i,4.0\n", r"Vinyl\.csv, line 2: exp")
            for line in ("u,i", "u,i,five", "u,i,0.5", "u,i,nan", "u;i;5.0", "")
        ),
        ("amazon_cds", write_amazon, "", "holds no ratings"),
        *(
            ("yahoo_r3", write_yahoo, f"1\t1\t5\n{line}\n", r"train\.txt, line 2: expected user")
            for line in ("1\t2", "1\t2\tx", "1\t2\t6", "a\t2\t3")
        ),
        ("yahoo_r3", write_yahoo, "1\t1001\t5\n", "there is no user or item 1001$"),
        ("yahoo_r3", write_yahoo, "0\t1\t5\n", "there is no user or item 0$"),
        (
            "ml_100k",
            write_movielens,
            "1|Toy Story (1995)|01-Jan-1995\n2\n",
            r"u\.item, line 2: expected an item id",
        ),
        ("coat", write_coat, "1 2", "line 290: expected 300 numbers"),
        ("coat", write_coat, "", "got 289"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, name, write, text, told):
    with pytest.raises(InputError, match=told):
        DATASETS[name].read(write(tmp_path, text))


# Finding them


def test_data_dir_comes_before_the_environment_and_that_before_the_cache(
    cache, tmp_path, monkeypatch
):
    assert locate("coat") is None
    (cache / "coat").mkdir(parents=True)
    assert locate("coat") == cache / "coat"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".cache" / "unexposed" / "coat").mkdir(parents=True)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert locate("coat") == tmp_path / "home" / ".cache" / "unexposed" / "coat"
    (tmp_path / "shared" / "coat").mkdir(parents=True)
    monkeypatch.setenv("UNEXPOSED_DATA", str(tmp_path / "shared"))
    assert locate("coat") == tmp_path / "shared" / "coat"
    assert locate("coat", tmp_path) == tmp_path / "shared" / "coat"  # tmp_path holds none
    (tmp_path / "coat").mkdir()
    assert locate("coat", tmp_path) == tmp_path / "coat"
    with pytest.raises(InputError, match="nowhere does not exist"):
        locate("coat", tmp_path / "nowhere")


YAHOO = r"ask for R3 at https://webscope.sandbox.yahoo.com.* into \$UNEXPOSED_DATA/yahoo_r3"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("yahoo3", "no data set 'yahoo3'; did you mean 'yahoo_r3'"),
        ("yahoo_r3", YAHOO),
        ("coat", "Coat is not here: allow the download"),
    ],
)
def test_a_data_set_that_is_not_here_says_how_to_get_it(cache, name, told):
    with pytest.raises(InputError, match=told):
        load(name, download=False)
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_status_tells_all_without_reading_anything(tmp_path):
    (tmp_path / "coat").mkdir()  # empty: reading it would fail
    rows = {row["name"]: row for row in status(tmp_path)}
    assert list(rows) == list(DATASETS)
    present = {name: row["present"] for name, row in rows.items()}
    assert present == dict.fromkeys(DATASETS, None) | {"coat": str(tmp_path / "coat")}
    assert all(row["terms"] and row["homepage"] and row["absent"] for row in rows.values())
    assert all((row["download"] or "https://").startswith("https://") for row in rows.values())
    unverified = [name for name, row in rows.items() if "unverified" in str(row["sha256"])]
    assert unverified == ["amazon_cds", "kuairand_pure", "kuairec", "cm100k", "open_bandit"]
    assert rows["kuairand_pure"]["holds"] == ["impressions", "random"]


# Fetching them


TABLE, CHANGED = b"u,i,5\nv,i,1\n", b"u,i,4\nv,i,1\n"
LOGIN = b"<html>please log in</html>"


def read_tiny(folder: Path) -> RatingData:
    lines = (folder / "deep" / "table.csv").read_text().splitlines()
    if not all(line.count(",") == 2 for line in lines):
        raise InputError("deep/table.csv, line 1: expected user, item, rating")
    values = np.array([line.split(",")[2] for line in lines], dtype=np.float32)
    index = np.arange(len(lines), dtype=np.int32)
    ids = Ids.range(len(lines))
    return RatingData(Ratings(index, index, values, ids, ids))


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


BROKEN_OFF = b"u,i,"


class Site:
    """A web server on this machine: what it serves, and what was asked of it."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache  # what is fetched from it goes there
        self.content: dict[str, bytes] = {}
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                if self.path not in site.content:
                    self.send_error(404)
                    return
                body = site.content[self.path]
                announced = len(body) + 1_000 * (body == BROKEN_OFF)
                self.send_response(200)
                self.send_header("Content-Length", str(announced))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site = Site(cache)
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


@pytest.fixture
def offer(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Registers the data set `tiny`, to be had at a path of the site."""

    def register(path: str, *, verified: bool = True, archive_md5: str | None = None) -> None:
        digest = hashlib.sha256(TABLE).hexdigest() if verified else None
        tiny = Dataset(
            title="Tiny",
            folder="tiny-1",
            files={"deep/table.csv": digest},
            homepage=site.address,
            download=site.address + path,
            terms="none",
            read=read_tiny,
            archive_md5=archive_md5,
        )
        monkeypatch.setitem(datasets.DATASETS, "tiny", tiny)

    return register


@pytest.mark.parametrize("inside", ["", "tiny-1/", "some/where/"])
def test_a_zip_is_fetched_once_and_unpacked_whatever_folder_it_holds(site, offer, inside, capfd):
    offer("/t.zip")
    files = {f"{inside}deep/table.csv": TABLE, f"{inside}README": b"terms", "__MACOSX/x": b""}
    site.content["/t.zip"] = zipped(files)
    for _ in range(2):
        assert load("tiny").logged.values.tolist() == [5, 1]
    assert site.asked == ["/t.zip"]
    assert capfd.readouterr() == ("", "")
    assert (site.cache / "tiny-1" / "README").read_bytes() == b"terms"
    assert [p.name for p in site.cache.iterdir()] == ["tiny-1"]


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("/t.zip", None, "the server answered 404"),
        ("/t.zip", zipped({"deep/table.csv": CHANGED}), "table.csv is not the original: SHA-256"),
        ("/t.zip", zipped({"other.csv": TABLE}), "deep/table.csv is missing"),
        ("/t.zip", LOGIN, "not a zip file"),
        ("/t.tar.gz", LOGIN, "not a gzip file"),
        ("/t.tar.gz", packed({"deep/table.csv": TABLE})[:90], "end"),
        ("/t.tar.gz", packed({"deep/table.csv": CHANGED}), "table.csv is not the original: SHA"),
        ("/unverified.csv", LOGIN, "line 1: expected user, item, rating"),
        ("/unverified.csv", BROKEN_OFF, "no connection, or it broke off"),
        ("/unreachable.zip", None, "no connection, or it broke off"),
    ],
)
def test_a_failed_download_says_why_and_leaves_nothing(site, offer, path, content, said):
    if "unreachable" in path:
        site.address = "http://127.0.0.1:1"  # a port that nobody listens on
    if content is not None:
        site.content[path] = content
    offer(path, verified="unverified" not in path)
    with pytest.raises(InputError) as raised:
        load("tiny")
    sentence = str(raised.value)
    assert said in sentence
    assert str(site.cache / "tiny-1") in sentence  # the cure
    assert "\n" not in sentence
    assert len(sentence) < 400
    assert list(site.cache.iterdir()) == []


def test_a_tar_is_unpacked_and_writes_nothing_outside_its_folder(site, offer, tmp_path):
    archive = packed({"tiny/deep/table.csv": TABLE, "../../outside.csv": b"x", "/root.csv": b"x"})
    site.content["/t.tar.gz"] = archive
    offer("/t.tar.gz", archive_md5=hashlib.md5(archive).hexdigest())
    assert load("tiny").logged.values.tolist() == [5, 1]
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"table.csv"}


def test_a_file_without_a_published_checksum_must_stay_as_it_was_downloaded(site, offer):
    offer("/table.csv", verified=False)
    site.content["/table.csv"] = TABLE
    for _ in range(2):
        assert load("tiny").logged.values.tolist() == [5, 1]
    (file,) = site.cache.rglob("table.csv")
    assert file.read_bytes() == TABLE
    file.write_bytes(CHANGED)
    with pytest.raises(InputError, match="table.csv is not what was downloaded: SHA-256.*again"):
        load("tiny")


def test_a_changed_or_missing_file_is_named_if_its_checksum_is_known(site, offer):
    file = site.cache / "tiny-1" / "deep" / "table.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(CHANGED)
    offer("/t.zip", verified=False)
    assert load("tiny").logged.values.tolist() == [4, 1]
    offer("/t.zip")
    found, expected = (hashlib.sha256(content).hexdigest()[:12] for content in (CHANGED, TABLE))
    with pytest.raises(
        InputError, match=rf"deep/table\.csv .*{found}.*{expected}.*to have it downloaded again"
    ):
        load("tiny")
    file.unlink()
    with pytest.raises(InputError, match=r"tiny-1: deep/table\.csv is missing; restore that file"):
        load("tiny")
