"""The attack of `make attack`, in miniature."""

from pathlib import Path

from command import python

ATTACK = Path(__file__).parent.parent / "benchmarks" / "attack.py"


def test_a_small_attack_finds_nothing():
    end = python(str(ATTACK), "--logs", "50", "--folders", "1", "--kills", "1")
    assert end.returncode == 0, end.stderr
    assert "| hostile logs | 50 | 0 |" in end.stdout
    assert "| kills and full disks | 1 | 0 |" in end.stdout
