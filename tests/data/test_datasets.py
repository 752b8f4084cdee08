"""Reading the original files, finding them, fetching them, and refusing what is not them."""

import hashlib
import io
import json
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
def test_coat_has_its_ratings_users_items_and_features() -> None:
    coat = real("coat")
    assert coat.random is not None
    assert coat.user_features is not None
    assert coat.item_features is not None
    assert (len(coat.logged), len(coat.random)) == (6_960, 4_640)
    assert coat.logged.user_ids == coat.random.user_ids == Ids.range(290)
    assert coat.logged.item_ids == coat.random.item_ids == Ids.range(300)
    assert coat.user_features.shape == (290, 14)
    assert coat.item_features.shape == (300, 33)
    assert len(coat.logged.clicks(threshold=4)) == 1_715 + 190
    assert (np.bincount(coat.random.users) == 16).all()


@pytest.mark.data
def test_yahoo_has_its_ratings_users_and_songs() -> None:
    yahoo = real("yahoo_r3")
    assert yahoo.random is not None
    assert (len(yahoo.logged), len(yahoo.random)) == (311_704, 54_000)
    assert (len(yahoo.logged.user_ids), len(yahoo.logged.item_ids)) == (15_400, 1_000)
    assert yahoo.logged.user_ids.values[0] == yahoo.logged.item_ids.values[0] == 1
    assert len(yahoo.logged.clicks(threshold=4)) == 112_570 + 12_507
    logged = yahoo.logged
    first = logged.user_ids.values[logged.users] == 1
    songs = logged.item_ids.values[logged.items][first][:3]
    assert songs.tolist() == [14, 35, 46]
    assert logged.values[first][:3].tolist() == [5, 1, 1]


@pytest.mark.data
def test_movielens_has_its_ratings_and_titles() -> None:
    movies = real("ml_100k")
    assert len(movies.logged) == 100_000
    assert (len(movies.logged.user_ids), len(movies.logged.item_ids)) == (943, 1_682)
    assert movies.item_titles is not None
    assert len(movies.item_titles) == 1_682
    assert movies.item_titles[0] == "Toy Story (1995)"
    assert "Misérables, Les (1995)" in movies.item_titles


@pytest.mark.data
@pytest.mark.parametrize("name", list(DATASETS))
def test_real_ratings_are_one_to_five_of_distinct_pairs_in_order(name: str) -> None:
    data = real(name)
    for part in filter(None, (data.logged, data.random)):
        assert part.values.min() >= 1
        assert part.values.max() <= 5
        keys = part.users.astype(np.int64) * len(part.item_ids) + part.items
        assert (np.diff(keys) > 0).all()


# Small files in the layout of the real ones


def write_amazon(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ratings_CDs_and_Vinyl.csv").write_text(text)
    return folder


def test_amazon_ids_are_strings_in_the_order_of_the_file(tmp_path: Path) -> None:
    folder = write_amazon(tmp_path, "zoe,B2,5.0,1383696000\nabe,B1,3.0,1383696001\nzoe,B1,1.0,1\n")
    ratings = DATASETS["amazon_cds"].read(folder).logged
    assert ratings.user_ids == Ids.of(["zoe", "abe"])
    assert ratings.item_ids == Ids.of(["B2", "B1"])
    assert ratings.users.tolist() == [0, 0, 1]
    assert ratings.items.tolist() == [0, 1, 1]
    assert ratings.values.tolist() == [5, 1, 3]


def test_the_later_of_two_ratings_of_a_pair_counts_with_or_without_time_stamps(
    tmp_path: Path,
) -> None:
    for end in ("", ",1383696000"):
        folder = write_amazon(tmp_path, f"u,i,5.0{end}\nv,i,4.0{end}\nu,i,2.0{end}\n")
        assert DATASETS["amazon_cds"].read(folder).logged.values.tolist() == [2, 4]


def write_yahoo(folder: Path, train: str) -> Path:
    for part, text in {"train": train, "test": "2\t3\t1\n"}.items():
        (folder / f"ydata-ymusic-rating-study-v1_0-{part}.txt").write_text(text)
    return folder


def test_yahoo_users_and_songs_are_all_there_whether_rated_or_not(tmp_path: Path) -> None:
    data = DATASETS["yahoo_r3"].read(write_yahoo(tmp_path, "1\t14\t5\n"))
    assert (len(data.logged.user_ids), len(data.logged.item_ids)) == (15_400, 1_000)
    assert (data.logged.users.tolist(), data.logged.items.tolist()) == ([0], [13])


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
        ("yahoo_r3", write_yahoo, "15401\t1\t5\n", "there is no user or item 15401$"),
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
def test_a_malformed_file_is_refused_with_its_line(
    tmp_path: Path, name: str, write: Callable[[Path, str], Path], text: str, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        DATASETS[name].read(write(tmp_path, text))


# Finding them


def test_data_dir_comes_before_the_environment_and_that_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("find", [load, locate])
def test_an_unknown_name_gets_the_nearest_one(find: object) -> None:
    with pytest.raises(InputError, match="no data set 'yahoo3'; did you mean 'yahoo_r3'"):
        find("yahoo3")  # type: ignore[operator]


@pytest.mark.usefixtures("cache")
def test_yahoo_absent_says_where_to_ask_and_where_to_put_it() -> None:
    with pytest.raises(InputError) as raised:
        load("yahoo_r3")
    said = str(raised.value)
    assert "https://webscope.sandbox.yahoo.com" in said
    assert "$UNEXPOSED_DATA/yahoo_r3" in said
    assert "\n" not in said


def test_nothing_is_downloaded_where_that_is_not_wanted(cache: Path) -> None:
    with pytest.raises(InputError, match=r"Coat is not here: allow the download"):
        load("coat", download=False)
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_status_tells_all_without_reading_anything(tmp_path: Path) -> None:
    (tmp_path / "coat").mkdir()  # empty: reading it would fail
    rows = status(tmp_path)
    assert [row["name"] for row in rows] == list(DATASETS)
    assert {row["name"]: row["present"] for row in rows} == {
        "coat": str(tmp_path / "coat"),
        "yahoo_r3": None,
        "ml_100k": None,
        "amazon_cds": None,
    }
    assert all(row["terms"] and row["homepage"] and row["absent"] for row in rows)
    assert json.loads(json.dumps(rows)) == rows


def test_every_data_set_is_known_by_its_own_name() -> None:
    assert all(name == dataset.name for name, dataset in DATASETS.items())


# Fetching them


TABLE = b"u,i,5\nv,i,1\n"


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


class Site:
    """A web server on this machine: what it serves, and what was asked of it."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache  # what is fetched from it goes there
        self.content: dict[str, bytes] = {}
        self.promised = 0  # bytes announced beyond those sent
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                if self.path not in site.content:
                    self.send_error(404)
                    return
                body = site.content[self.path]
                self.send_response(200)
                self.send_header("Content-Length", str(len(body) + site.promised))
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

    def register(path: str, *, verified: bool = True) -> None:
        digest = hashlib.sha256(TABLE).hexdigest() if verified else None
        tiny = Dataset(
            name="tiny",
            title="Tiny",
            folder="tiny-1",
            files={"deep/table.csv": digest},
            homepage=site.address,
            download=site.address + path,
            terms="none",
            absent="download it",
            read=read_tiny,
        )
        monkeypatch.setitem(datasets.DATASETS, "tiny", tiny)

    return register


@pytest.mark.parametrize("inside", ["", "tiny-1/", "some/where/"])
def test_a_zip_is_fetched_once_and_unpacked_whatever_folder_it_holds(
    site: Site, offer: Callable[..., None], inside: str, capfd: pytest.CaptureFixture[str]
) -> None:
    offer("/t.zip")
    files = {f"{inside}deep/table.csv": TABLE, f"{inside}README": b"terms", "__MACOSX/x": b""}
    site.content["/t.zip"] = zipped(files)
    for _ in range(2):
        assert load("tiny").logged.values.tolist() == [5, 1]
    assert site.asked == ["/t.zip"]
    assert capfd.readouterr() == ("", "")
    assert (site.cache / "tiny-1" / "README").read_bytes() == b"terms"
    assert [p.name for p in site.cache.iterdir()] == ["tiny-1"]


def test_a_file_that_is_not_an_archive_is_kept_as_it_comes(
    site: Site, offer: Callable[..., None]
) -> None:
    offer("/table.csv")
    site.content["/table.csv"] = TABLE
    assert load("tiny").logged.values.tolist() == [5, 1]
    assert (site.cache / "tiny-1" / "deep" / "table.csv").read_bytes() == TABLE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the server answered 404"),
        (zipped({"deep/table.csv": b"u,i,4\n"}), "deep/table.csv is not the original: SHA-256"),
        (zipped({"other.csv": TABLE}), "deep/table.csv is missing"),
        (b"<html>please log in</html>", "not a zip file"),
    ],
    ids=["404", "corrupted", "other files", "not an archive"],
)
def test_a_failed_download_says_why_and_leaves_nothing(
    site: Site, offer: Callable[..., None], content: bytes | None, said: str
) -> None:
    offer("/t.zip")
    if content is not None:
        site.content["/t.zip"] = content
    assert_fails_cleanly(site, said)


def test_a_transfer_that_breaks_off_leaves_nothing(site: Site, offer: Callable[..., None]) -> None:
    offer("/table.csv", verified=False)
    site.content["/table.csv"] = TABLE
    site.promised = 1_000
    assert_fails_cleanly(site, "no connection, or it broke off")


def test_an_unreachable_server_leaves_nothing(site: Site, offer: Callable[..., None]) -> None:
    site.address = "http://127.0.0.1:1"  # a port that nobody listens on
    offer("/t.zip")
    assert_fails_cleanly(site, "no connection, or it broke off")


def test_an_unverified_file_that_cannot_be_read_never_enters_the_cache(
    site: Site, offer: Callable[..., None]
) -> None:
    offer("/table.csv", verified=False)
    site.content["/table.csv"] = b"<html>please log in</html>\n"
    assert_fails_cleanly(site, "line 1: expected user, item, rating")


def test_an_unverified_file_must_stay_as_it_was_downloaded(
    site: Site, offer: Callable[..., None], cache: Path
) -> None:
    offer("/table.csv", verified=False)
    site.content["/table.csv"] = TABLE
    load("tiny")
    load("tiny")
    (file,) = cache.rglob("table.csv")
    file.write_bytes(TABLE.replace(b"5", b"4"))
    with pytest.raises(InputError, match="table.csv is not what was downloaded: SHA-256.*again"):
        load("tiny")


def test_every_download_is_encrypted_and_says_where_it_is_unverified() -> None:
    rows = {row["name"]: row for row in status()}
    assert all((row["download"] or "https://").startswith("https://") for row in rows.values())
    assert [name for name, row in rows.items() if "unverified" in str(row["sha256"])] == [
        "amazon_cds"
    ]


def assert_fails_cleanly(site: Site, said: str) -> None:
    with pytest.raises(InputError) as raised:
        load("tiny")
    sentence = str(raised.value)
    assert said in sentence
    assert str(site.cache / "tiny-1") in sentence  # the cure
    assert "\n" not in sentence
    assert len(sentence) < 400
    assert list(site.cache.iterdir()) == []


def test_a_changed_or_missing_file_is_named(site: Site, offer: Callable[..., None]) -> None:
    offer("/t.zip")
    (site.cache / "tiny-1" / "deep").mkdir(parents=True)
    (site.cache / "tiny-1" / "deep" / "table.csv").write_bytes(b"u,i,4\n")
    found = hashlib.sha256(b"u,i,4\n").hexdigest()[:12]
    expected = hashlib.sha256(TABLE).hexdigest()[:12]
    with pytest.raises(
        InputError, match=rf"deep/table\.csv .*{found}.*{expected}.*to have it downloaded again"
    ):
        load("tiny")
    (site.cache / "tiny-1" / "deep" / "table.csv").unlink()
    with pytest.raises(InputError, match=r"tiny-1: deep/table\.csv is missing; restore that file"):
        load("tiny")


def test_a_file_without_a_known_digest_is_taken_as_it_is(
    site: Site, offer: Callable[..., None]
) -> None:
    offer("/t.zip", verified=False)
    (site.cache / "tiny-1" / "deep").mkdir(parents=True)
    (site.cache / "tiny-1" / "deep" / "table.csv").write_bytes(b"u,i,4\n")
    assert load("tiny").logged.values.tolist() == [4]
