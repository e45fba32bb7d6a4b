"""Plans, profiles and limits as objects."""

import numpy as np
import pytest

from conftest import mlp


def test_plan_profile_and_limit(data):
    x, y = data
    model = mlp(tune=True)
    plan = model.plan(x, y, batch_size=24)
    assert len(plan) == len(plan.kernels) > 0 and all(each["kernel"].startswith("cpu.") for each in plan)
    assert any(each["chosen"] for each in plan.candidates)
    assert plan.memory["arena"] >= plan.memory["peak_live"] > 0
    assert "limit:" in repr(plan) and "<table>" in plan._repr_html_()
    limit = model.limit(x, y, batch_size=24)
    assert limit.seconds == pytest.approx(max(limit.compute_seconds, limit.memory_seconds))
    assert limit.flops > 24 * 2 * 3 * (6 * 16 + 16 * 3) * 0.6, "forward and backward products"
    assert limit.fraction(2 * limit.seconds) == pytest.approx(0.5)
    assert limit.bound in repr(limit) and "<td" in limit._repr_html_()
    profile = model.profile(x, y, batch_size=24, seconds=0.2)
    assert profile.seconds > limit.seconds / 2
    assert np.isclose(sum(each["share"] for each in profile), 1)
    assert profile.roofline.startswith("<svg") and profile.roofline in profile._repr_html_()
    assert "passes over" in repr(profile)
