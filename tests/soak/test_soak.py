"""A few seconds of the soak, so that it is there when it is needed: `python -m tests.soak --minutes 10`."""

from pathlib import Path

import pytest

from tests.soak.soak import Report, soak

pytestmark = pytest.mark.anyio


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of processes from /proc")
async def test_good_and_bad_invocations_side_by_side_lose_and_mix_nothing():
    report = await soak(seconds=3)
    assert report.wrong == []
    assert report.lost_environments == 0
    assert report.environments == 8
    assert len(report.invocations) == len({kind for kind, count in report.invocations.items() if count}) == 12


def test_memory_that_grows_is_noticed():
    assert Report(memory=[60 + n / 10 for n in range(200)]).good is False
    assert Report(memory=[90, 70] + [60 + n % 3 for n in range(200)]).good is True
