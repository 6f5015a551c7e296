"""Which version is served: what a run has accepted, what it went back to, and what comes while it is watched."""

import shutil
import time

import pytest

import small_run
from holdfast.checkpoint.snapshot import Snapshot
from holdfast.checkpoint.store import CheckpointStore
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.reward.ensemble import VersionStore
from holdfast.serving.versions import open_directory, open_run
from reward_server import OWNER, serving_rewards

ONE = {"prompts": ["x"], "responses": ["y"]}


@pytest.fixture
def run(rewarded_run, tmp_path):
    """A copy to change: versions 1 and 2, and no checkpoint yet."""
    copy = tmp_path / "run"
    shutil.copytree(rewarded_run, copy)
    shutil.move(copy / "rewards" / "v003", tmp_path / "v003")
    shutil.rmtree(copy / "checkpoints")
    return copy


def commit(run, version, round, step_in_round=0):
    position = {"round": round, "step_in_round": step_in_round}
    document = {"parts": {"ensemble": {"version": version}, "position": position}}
    CheckpointStore(run / "checkpoints", keep=3).save(f"round-{round - 1:04d}", Snapshot({}, document))


def save_version(run, number, round, refused=False):
    ensemble = open_run(run).load(1).ensemble
    ensemble.version, ensemble.round = number, round
    VersionStore(run / "rewards").save(ensemble, refused=refused)


def test_the_newest_version_that_was_accepted_is_in_use(run):
    assert open_run(run).in_use() == 2
    save_version(run, 3, round=3, refused=True)
    assert open_run(run).in_use() == 2
    assert open_run(run).numbers() == [1, 2]
    with pytest.raises(HoldfastError, match="There is no version 3 of the ensemble that may be used; there are 1, 2"):
        open_run(run).load(3)


def test_a_rollback_takes_the_version_back_too(run):
    """Round 3 made version 3 and was rolled back at its end; round 4 makes version 4 while it goes on."""
    save_version(run, 3, round=3)
    assert open_run(run).in_use() == 3
    commit(run, version=2, round=4)
    assert open_run(run).in_use() == 2
    save_version(run, 4, round=4)
    assert open_run(run).in_use() == 4
    commit(run, version=4, round=5)
    assert open_run(run).in_use() == 4


def test_a_version_that_was_left_in_the_middle_of_its_round_is_not_taken_up_again(run):
    """Round 3 made version 3, and an owner went back to version 1 after its first step; round 4 makes version 4."""
    save_version(run, 3, round=3)
    commit(run, version=1, round=3, step_in_round=1)
    assert open_run(run).in_use() == 1
    save_version(run, 4, round=4)
    assert open_run(run).in_use() == 4


def test_a_finished_run_serves_what_it_ended_with(rewarded_run):
    assert open_run(rewarded_run).in_use() == 3


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_version_that_the_run_accepts_is_taken_up(run, tmp_path):
    with serving_rewards(run, follow_seconds=0.05) as served:
        assert served.post("/score", ONE)[1]["version"] == 2
        shutil.move(tmp_path / "v003", run / "rewards" / "v003")
        until(lambda: served.post("/score", ONE)[1]["version"] == 3)
        assert served.said == ["Version 3 of the ensemble scores from now on, in the place of version 2."]
        # A version that somebody has chosen stays until they let go of it.
        served.post("/versions", {"version": 1}, OWNER)
        time.sleep(0.3)
        assert served.post("/score", ONE)[1]["version"] == 1
        served.post("/versions", {}, OWNER)
        assert served.post("/score", ONE)[1]["version"] == 3


def test_a_damaged_version_is_said_once_and_not_used(run, tmp_path):
    weights = tmp_path / "v003" / "member-0.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with serving_rewards(run, follow_seconds=0.05) as served:
        shutil.move(tmp_path / "v003", run / "rewards" / "v003")
        until(lambda: served.said)
        time.sleep(0.3)
        assert len(served.said) == 1
        assert "so version 2 stays" in served.said[0]
        assert served.post("/score", ONE)[1]["version"] == 2


def test_a_pinned_version_is_not_followed_away_from(rewarded_run):
    with serving_rewards(rewarded_run, version=1, follow_seconds=0.05) as served:
        time.sleep(0.3)
        assert served.post("/score", ONE)[1]["version"] == 1


def test_what_was_labelled_is_known_from_the_run(rewarded_run):
    known = open_run(rewarded_run).load(3).known
    assert known.labelled_tokens > 100
    assert len(known.features_MD) > 10
    early = open_run(rewarded_run).load(1).known
    assert 0 < early.labelled_tokens < known.labelled_tokens


def test_an_ensemble_of_holdfast_reward_is_served_with_its_policy(rewarded_run, tmp_path):
    out = tmp_path / "rm"
    policy = rewarded_run / "reference"
    settings = small_run.settings(sft__epochs="0")
    assert main(["reward", str(out), "--policy", str(policy), *settings]) == 0
    from holdfast.config import load_config

    words = [word for word in settings if word != "--set"]
    config = load_config(None, [*words, f"policy.path={str(policy)!r}"])
    scorer = open_directory(out, config, None).load(1)
    assert scorer.version == 1
    assert scorer.known.labelled_tokens == 0
    with pytest.raises(HoldfastError, match="give the policy that it was trained from: --policy DIR"):
        open_directory(out, load_config(), None)


def test_a_run_without_an_ensemble_is_refused(tmp_path):
    import web_site

    run = web_site.make_run(tmp_path / "run").path
    with pytest.raises(HoldfastError, match="has no reward ensemble yet"):
        open_run(run)
