"""A run in words: its result in a few sentences, and its key figures."""

from dataclasses import dataclass

from holdfast.events.sentences import Fields, Rate, none_answered
from holdfast.report.data import RunData
from holdfast.report.delivered import Delivered, answers_of, delivered, kept_curve, kept_gold, version_at
from holdfast.report.rounds import Summary, summary
from holdfast.report.undone import Curve, undone
from holdfast.statistics import Share
from holdfast.text import counted, format_limit, format_value, one_line, percent


@dataclass(frozen=True)
class Tile:
    """A key figure: what it is, its value, and a short note under it."""

    label: str
    value: str
    note: str = ""


def status(run: RunData) -> str:
    """Whether the run finished, was stopped by the guard, or is (as far as its files tell) under way."""
    for event in reversed(run.events):
        if event.kind == "run_finished":
            return "finished"
        if event.kind == "stopped":
            return "stopped"
        if event.kind == "resumed":
            break
    return "not finished"


def result(run: RunData) -> str:
    """The result of the run in a few plain sentences."""
    proxy = kept_curve(run, "objective/scores")
    label, gold = gold_curve(run)
    moves = []
    if proxy:
        moves.append(_moved_proxy(run, proxy))
    if gold:
        moves.append(_moved(f"gold on {label}" if proxy else f"Gold on {label}", gold) + _peak(gold))
    sentences = ["; ".join(moves) + "."] if moves else []
    if not sentences:
        steps = len(run.metrics)
        sentences = [f"{counted(steps, 'step')} recorded, none with a score." if steps else "No step recorded yet."]
    if run.happened("rollback"):
        sentences.insert(0, f"The run stands on {delivered(run).policy}.")
    sentences += [_parting(run, proxy, gold), _refreshes(run), _kl(run)]
    return " ".join(sentence for sentence in sentences if sentence)


def gold_curve(run: RunData) -> tuple[str, Curve]:
    """Gold on held-out prompts, or on the rollouts where there is no other, and what to call it."""
    heldout = kept_gold(run, "heldout")
    return ("held-out prompts", heldout) if heldout else ("rollouts", kept_gold(run, "rollout"))


def _moved(subject: str, curve: Curve) -> str:
    start, end = curve[0][1], curve[-1][1]
    first, last = format_value(start, beside=end), format_value(end, beside=start)
    if len(curve) == 1:
        at = f"at step {curve[0][0]:,}" if curve[0][0] else "before the first step"
        return f"{subject} was {first} {at}"
    if first == last:
        return f"{subject} stayed at {last}"
    return f"{subject} {'rose' if end > start else 'fell'} from {first} to {last}"


def _moved_proxy(run: RunData, curve: Curve) -> str:
    """How the proxy moved; scores of two versions of the ensemble are two scales, between which nothing moves."""
    (first, start), (last, end) = curve[0], curve[-1]
    versions = version_at(run, first), version_at(run, last)
    if changed := _reward_changed(run, first, last):
        was, now = format_value(start, beside=end), format_value(end, beside=start)
        return f"Reward was {was} at first and is {now} as it has been counted since round {changed}: two rewards"
    if versions[0] == versions[1]:
        return _moved("Reward" if run.given_reward else "Proxy", curve)
    words = f"Proxy was {format_value(start, beside=end)} by v{versions[0]} of the ensemble"
    return f"{words} and is {format_value(end, beside=start)} by v{versions[1]}, which are two scales"


def _reward_changed(run: RunData, first: int, last: int) -> int | None:
    """The last round between two steps after which the guard counted a component of a given reward for less, or added
    what labels say: scores before and after it are of two rewards."""
    done = [event for event in run.happened("action") if event.fields["rung"] in ("discount", "refresh")]
    changed = [event.round for event in done if first <= event.step < last and event.fields.get("changed")]
    return max(changed, default=None) if run.given_reward else None


def _peak(curve: Curve) -> str:
    step, value = max(curve, key=lambda point: point[1])
    if len(curve) < 3 or format_value(value) == format_value(curve[-1][1]):
        return ""
    return f" (peak {format_value(value)} at step {step:,})"


def _parting(run: RunData, proxy: Curve, gold: Curve) -> str:
    """Say so when gold fell after its peak while the proxy went on rising: the mark of over-optimisation.

    Gold is noisy, so a fall of less than a fifth of the range it covered in the run is not reported. Nor is a rise
    from one version of the ensemble to another, which are two scales, or of a given reward that was changed.
    """
    if len(proxy) < 2 or len(gold) < 3:
        return ""
    peak_step, peak = max(gold, key=lambda point: point[1])
    fall = peak - gold[-1][1]
    step, score = min(proxy, key=lambda point: abs(point[0] - peak_step))
    rise = proxy[-1][1] - score
    last = proxy[-1][0]
    if version_at(run, step) != version_at(run, last) or _reward_changed(run, step, last):
        return ""
    if fall < 0.2 * (peak - min(value for _, value in gold)) or fall <= 0 or rise <= 0:
        return ""
    return (
        f"After its peak gold fell by {format_value(fall)} while the proxy rose by {format_value(rise)}: "
        "a sign that the reward was over-optimised."
    )


def _refreshes(run: RunData) -> str:
    if not run.metrics or _has_no_ensemble(run):
        return ""
    count, refused = len(run.refreshes), _refused(run)
    words = counted(count, "refresh", "refreshes") if count else "No refresh"
    return f"{words}{f', {refused}' if refused else ''}."


def _refused(run: RunData) -> str:
    """How many refreshes the gate refused; empty where none was."""
    refused = len(run.refused)
    return f"{refused:,} refused by the gate" if refused else ""


def _has_no_ensemble(run: RunData) -> bool:
    """Whether the run learns from pairs alone, without a reward model, or is given its reward."""
    return bool(run.given_reward) or (bool(run.known("loss/dpo")) and not run.known("objective/scores"))


def _kl(run: RunData) -> str:
    kl, budget = kept_curve(run, "objective/kl"), kept_curve(run, "control/kl_target")
    if not kl:
        return ""
    end = f"KL to reference {'ended at' if len(kl) > 1 else 'was'} {format_value(kl[-1][1])} nats"
    if not budget:
        return f"{end}."
    over = kl[-1][1] > budget[-1][1]
    return f"{end}{', over its' if over else ' of a'} budget of {format_limit(budget[-1][1])}."


# ---- key figures


def tiles(run: RunData) -> list[Tile]:
    """The figures worth knowing before any chart; one that the run has not recorded is left out."""
    policy = delivered(run)
    sentences = [
        *_guard_tiles(summary(run), policy),
        _steps_tile(run),
        _proxy_tile(run, policy),
        *given_tiles(run),
        _curve_tile("Gold, " + gold_curve(run)[0], gold_curve(run)[1]),
        _kl_tile(run),
        _refresh_tile(run),
        _members_tile(run),
        _accuracy_tile(run, policy),
        _answers_tile(run),
        _time_tile(run),
    ]
    return [tile for tile in sentences if tile]


def members_left(run: RunData) -> tuple[str, str] | None:
    """How many of the reward members are in use, and who was left out and why; None where nobody ever was."""
    events = run.happened("member_degraded")
    if not events:
        return None
    versions = run.known("ensemble/version")
    in_use = int(versions[-1][1]) if versions else events[-1].fields["version"]
    # The next version tries them all again, so that only those of the version in use are still out.
    now = [event for event in events if event.fields["version"] == in_use] if versions else events
    last, members = (now or events)[-1].fields, events[-1].fields["members"]
    since = "" if now else f" of version {last['version']:,}"
    note = f"member {last['member']} was left out{since}, since it {one_line(last['why'])}"
    return f"{last['left'] if now else members:,} of {members:,}", note


def _members_tile(run: RunData) -> Tile | None:
    told = members_left(run)
    return None if told is None else Tile("Reward members", *told)


def _guard_tiles(guard: Summary | None, policy: Delivered) -> list[Tile | None]:
    if guard is None:
        return []
    left = guard.audit_labels_left
    return [
        Tile("Verdict", guard.verdict or "none", _rollbacks(guard)),
        _delivered_tile(policy) if guard.rollbacks else None,
        _rate_tile("Preferred to the reference", policy.preferred_to_reference),
        _rate_tile("Preferred to the last good", policy.preferred_to_last_good),
        Tile(
            "Audit labels",
            f"{guard.audit_labels:,}",
            f"of {counted(guard.labels, 'label')} in all"
            + ("" if left is None else f"; {left:,} left for audits")
            + _unanswered(guard),
        ),
    ]


def _delivered_tile(policy: Delivered) -> Tile:
    value = "reference" if policy.is_reference else f"round {policy.round:,}"
    return Tile("Delivers", value, f"{policy.policy}, step {policy.step:,}")


def verdict(guard: Summary) -> str:
    """The verdict on the last round, and what became of it."""
    return f"{guard.verdict or 'none'}{' ' if guard.undone else '; '}{_rollbacks(guard)}"


def _rollbacks(guard: Summary) -> str:
    """How often the run went back, and whether the policy that the verdict is on was undone by it."""
    words = counted(guard.rollbacks, "rollback") if guard.rollbacks else "no rollback"
    return f"on round {guard.round:,}, which was undone; {words}" if guard.undone else words


def _rate_tile(label: str, rate: Rate | None) -> Tile | None:
    if rate is None:
        return None
    claimed = "" if rate.claimed is None else f"; {rate.claimant} claims {percent(rate.claimed)}"
    note = f"{rate.share.interval} in {counted(rate.pairs, 'pair')}, by {rate.answered_by}{claimed}"
    return Tile(label, percent(rate.rate), note)


def _steps_tile(run: RunData) -> Tile | None:
    if not run.metrics:
        return None
    rounds = len(set(run.metrics.rounds))
    skipped = run.known("steps/skipped")
    note = counted(rounds, "round")
    if skipped and skipped[-1][1] > 0:
        note += f", {int(skipped[-1][1]):,} skipped"
    gone = undone(run)
    if taken_back := sum(map(gone.covers, run.metrics.steps)) if gone.spans else 0:
        note += f", {counted(taken_back, 'step')} undone"
    return Tile("Last step", f"{run.metrics.steps[-1]:,}", note)


def given_tiles(run: RunData) -> list[Tile]:
    """Of a reward that is given: what could not be scored, what counts for less, and what audits say it is worth."""
    unscored, out = run.known("reward/unscored"), list[Tile]()
    if any(share > 0 for _, share in unscored):
        mean = sum(share for _, share in unscored) / len(unscored)
        reasons = [one_line(why) for event in run.happened("unscored")[-1:] for why in event.fields["reasons"][:1]]
        out.append(Tile("Not scored", percent(mean), "; ".join(["of all answers", *reasons])))
    for event in run.happened("action"):
        if event.fields["rung"] == "discount":
            out.append(Tile("Discounted", f"round {event.round}", one_line(event.fields["words"])))
    if run.given_reward and run.happened("audit"):
        out.append(_claims_tile(run))
    return out


def _claims_tile(run: RunData) -> Tile:
    learnt = run.happened("claims_learnt")
    if not learnt:
        return Tile("Claims", "none yet", "audits have not told what the reward is worth to people")
    last = learnt[-1].fields
    answers = counted(last["audits"], "audit answer")
    if not last["ready"]:
        return Tile("Claims", "none yet", f"{answers} do not show that people prefer what it pays more for")
    worth = f"a difference of 1 is worth {format_value(last['slope'])} log-odds to people"
    return Tile("Claims", "learnt", f"by {answers}, {worth}")


def _curve_tile(label: str, curve: Curve) -> Tile | None:
    if not curve:
        return None
    peak_step, peak = max(curve, key=lambda point: point[1])
    start, end = curve[0][1], curve[-1][1]
    note = f"from {format_value(start, beside=end)}" if len(curve) > 1 else f"at step {curve[0][0]:,}"
    if len(curve) > 2 and format_value(peak) != format_value(end):
        note += f", peak {format_value(peak)} at {peak_step:,}"
    return Tile(label, format_value(end, beside=start), note)


def _proxy_tile(run: RunData, policy: Delivered) -> Tile | None:
    curve = kept_curve(run, "objective/scores")
    tile = _curve_tile("Reward as given" if run.given_reward else "Proxy score", curve)
    if tile is None or policy.reward_version is None:
        return tile
    if policy.two_scales:
        note = f"by v{policy.reward_version}; the reference's was {format_value(curve[0][1])} by "
        return Tile(tile.label, tile.value, f"{note}v{policy.reference_version}, another scale")
    return Tile(tile.label, tile.value, f"{tile.note}; by v{policy.reward_version}")


def _kl_tile(run: RunData) -> Tile | None:
    kl, budget = kept_curve(run, "objective/kl"), kept_curve(run, "control/kl_target")
    if not kl:
        return None
    note = f"nats of a budget of {format_limit(budget[-1][1])}" if budget else "nats"
    return Tile("KL to reference", format_value(kl[-1][1]), note)


def _refresh_tile(run: RunData) -> Tile | None:
    if (not run.metrics and not run.events) or _has_no_ensemble(run):
        return None
    labels = kept_curve(run, "ensemble/labels") or run.known("ensemble/labels")[:1]
    note = f"ensemble learnt from {counted(int(labels[-1][1]), 'label')}" if labels else ""
    if refused := _refused(run):
        note = refused + (f"; {note}" if note else "")
    return Tile("Refreshes", str(len(run.refreshes)), note)


def _accuracy_of(run: RunData, policy: Delivered) -> Fields | None:
    """What the version that scored the delivered policy came to on held-out comparisons when it was trained.

    After a rollback versions may be numbered again, so it is the newest of its number that the policy has met.
    """
    known = [row for row in run.events if not row.refused and row.fields.get("holdout_accuracy") is not None]
    if policy.reward_version is not None:
        known = [
            row for row in known if row.fields["version"] == policy.reward_version and row.step < max(policy.step, 1)
        ]
    return known[-1].fields if known else None


def accuracy(run: RunData, policy: Delivered) -> str:
    """How right the reward ensemble is on held-out comparisons, in a sentence; empty where nobody knows."""
    newest = _accuracy_of(run, policy)
    if newest is None:
        return ""
    right = Share(newest["holdout_accuracy"], newest["held_out"]).of("held-out comparison")
    return f"Version {newest['version']} of the reward ensemble was right on {right}."


def _accuracy_tile(run: RunData, policy: Delivered) -> Tile | None:
    newest = _accuracy_of(run, policy)
    if newest is None:
        return None
    right = Share(newest["holdout_accuracy"], newest["held_out"])
    note = f"v{newest['version']} on {right.of('held-out comparison')}"
    return Tile("Reward-model accuracy", percent(right.value), note)


def _answers_tile(run: RunData) -> Tile | None:
    length, unfinished = kept_curve(run, "response/length_mean"), kept_curve(run, "response/unfinished")
    if not length:
        return None
    note = f"tokens, from {format_value(length[0][1])}"
    if unfinished and 0 <= unfinished[-1][1] <= 1:  # a log may hold anything
        step, share = unfinished[-1]
        answers = answers_of(run, step)
        of = percent(share) if answers is None else Share(share, answers).of("answer")
        note += f"; {of} unfinished"
    return Tile("Answer length", format_value(length[-1][1]), note)


def _time_tile(run: RunData) -> Tile | None:
    total = sum(sum(row.seconds.values()) for row in run.timings)
    if not run.timings or total <= 0:
        return None
    return Tile("Time in steps", duration(total), f"{duration(total / len(run.timings))} a step")


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


# ---- for a terminal


def result_lines(policy: Delivered) -> list[tuple[str, str]]:
    """Which policy the run delivers and what its figures are of, a line each; after the table of figures."""
    lines = [("delivers", policy.policy)]
    if policy.figures:
        lines.append(("measured", policy.measured_words))
    if policy.reward_version is not None:
        start = f"; at the start v{policy.reference_version}, another scale" if policy.two_scales else ""
        lines.append(("proxy by", f"v{policy.reward_version} of the ensemble{start}"))
    return lines


def guard_lines(guard: Summary | None, policy: Delivered) -> list[tuple[str, str]]:
    """The guard's part of the result, a line each."""
    if guard is None:
        return []
    lines = [("verdict", verdict(guard)), *(("advice", words) for words in guard.advice)]
    for label, rate in (
        ("preferred to reference", policy.preferred_to_reference),
        ("preferred to last good", policy.preferred_to_last_good),
    ):
        if rate is not None:
            claimed = "" if rate.claimed is None else f"; the {rate.claimant} claims {percent(rate.claimed)}"
            lines.append((label, f"{rate.share.of('pair')} by {rate.answered_by}{claimed}"))
    if policy.audited_in is None:
        lines.append(("preferred to reference", _never_audited(policy)))
    left = "" if guard.audit_labels_left is None else f"; {guard.audit_labels_left:,} left for audits"
    again = f" and {guard.repeats:,} asked again" if guard.repeats else ""
    spent = f"{guard.labels:,}, of which {guard.audit_labels:,} in audits{again}{left}{_unanswered(guard)}"
    lines.append(("labels spent", spent))
    return lines


def _unanswered(guard: Summary) -> str:
    return f"; {counted(guard.unanswered, 'comparison')} left unanswered" if guard.unanswered else ""


def _never_audited(policy: Delivered) -> str:
    if policy.unanswered:
        return none_answered(policy.unanswered)
    return "not asked: it is the reference" if policy.is_reference else "nobody was asked about this policy"
