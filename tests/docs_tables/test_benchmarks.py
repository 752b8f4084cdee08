"""What the benchmarks wrote, as tables."""

from docs_tables import benchmarks
from unexposed.report.tables import markdown


def test_a_figure_that_could_not_be_measured_is_absent_and_large_ones_have_no_fractions() -> None:
    rows = [
        {"what": "UBO / RelMF", "bar": "≤ 2.0", "median": 2.256, "least": 2.0, "greatest": 99.994},
        {"what": "RecBole's BPR", "bar": "", "median": None, "least": None, "greatest": None},
        {"what": "bytes", "bar": "", "median": 3588.4, "least": 100.0, "greatest": 12345.6},
    ]
    document = {
        "data": "Yahoo!R3",
        "clicks": 1000,
        "load_average": [0.52, 0, 0],
        "others_share": 0.25,
        "table": rows,
    }
    lines = markdown(benchmarks.cpu(document)).splitlines()
    assert "| UBO / RelMF | ≤ 2.0 | 2.26 | 2.00 | 99.99 |" in lines
    assert "| RecBole's BPR | – | absent | absent | absent |" in lines
    assert "| bytes | – | 3,588 | 100 | 12,346 |" in lines
    assert any("had 25% of the cores; load average 0.5" in line for line in lines)
