"""The labelling page and the pages around it without a browser: what is shown, and what must not be."""

import json
import re
import time
from dataclasses import replace

import pytest

import web_site
from holdfast.models.prompt import Message
from holdfast.preferences.comparison import Choice, Label
from holdfast.run.demand import label_demand
from holdfast.web.differences import MOST_PIECES, differences

FRAGMENT = {"X-Fragment": "1"}


def fields_of(html: str) -> dict[str, str]:
    form = html.split('id="answer"')[1].split("</form>")[0]
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def test_nothing_tells_where_an_answer_comes_from_before_it_is_judged(site):
    web_site.ask(site.site, web_site.pairs(1))
    page = re.sub("</?mark>", "", site.as_role("labeller").get("/label").text)
    assert "first answer 0" in page
    assert "second answer 0" in page
    for secret in ("round-0001", "reference", "0.75", "75%", "25%", "run/audit"):
        assert secret not in page.replace("/audit", "")


def test_an_answer_brings_the_next_pair_and_what_the_ensemble_thought(site):
    web_site.ask(site.site, web_site.pairs(2))
    client = site.as_role("labeller")
    fields = fields_of(client.get("/label").text)
    reply = client.post("/label/answer", data={**fields, "said": "left", "seconds": "4.5"}, headers=FRAGMENT).text
    assert "Your last answer: answer 1" in reply
    assert "reference" not in reply  # who does not look may still take the answer back
    look = site.form("labeller", submission=fields["submission"])
    told = client.post("/label/reveal", data=look).text
    assert re.search(r"<b>(75|25)%</b>", told)
    assert "reference" in told
    assert "you have answered <b>1</b>" in reply
    assert 'id="answer"' in reply


def test_nothing_stands_behind_a_skip(site):
    web_site.ask(site.site, web_site.pairs(2))
    client = site.as_role("labeller")
    fields = fields_of(client.get("/label").text)
    reply = client.post("/label/answer", data={**fields, "said": "skip"}, headers=FRAGMENT).text
    assert "You have skipped the last pair." in reply
    assert 'id="reveal"' not in reply
    told = client.post("/label/reveal", data=site.form("labeller", submission=fields["submission"])).text
    assert "not behind a skip" in told
    assert "reference" not in told


def test_progress_says_what_the_run_waits_for(site):
    web_site.ask(site.site, web_site.pairs(3, "run/r0001-"))
    web_site.ask(site.site, web_site.pairs(4))
    page = site.as_role("labeller").get("/label").text
    assert ">audit</b>" in page
    assert "team 0 of 4" in page


def test_a_conversation_is_shown_turn_by_turn(site):
    (item,) = web_site.pairs(1)
    turns = (Message("system", "be brief"), Message("user", "<i>hello</i>"))
    web_site.ask(site.site, [replace(item, prompt=turns)])
    page = site.as_role("labeller").get("/label").text
    assert '<p class="role">system</p>' in page
    assert "&lt;i&gt;hello&lt;/i&gt;" in page


def test_undo_flag_and_note_by_form(site):
    web_site.ask(site.site, web_site.pairs(1))
    client = site.as_role("labeller")
    fields = fields_of(client.get("/label").text)
    remark = site.form("labeller", lease=fields["lease"], remark="remark-0001", kind="flag")
    assert "flagged" in client.post("/label/remark", data=remark, headers=FRAGMENT).text
    client.post("/label/answer", data={**fields, "said": "tie"})
    assert (
        "There is nothing to take back"
        not in client.post("/label/undo", data=site.form("labeller"), headers=FRAGMENT).text
    )
    assert site.site.store.labelled() == []


def test_flags_and_notes_are_seen_by_those_who_watch_and_can_be_taken_back(site):
    web_site.ask(site.site, web_site.pairs(2))
    queue = site.site.queue
    lease = queue.next("labeller")
    queue.remark("remark-0001", "labeller", lease.token, "flag")
    queue.remark("remark-0002", "labeller", lease.token, "note", "<i>odd</i> \0 prompt")
    page = site.as_role("viewer").get("/quality").text
    assert "Flags and notes" in page
    assert "&lt;i&gt;odd&lt;/i&gt; ␀ prompt" in page
    queue.remark("remark-0003", "labeller", lease.token, "unflag")
    queue.remark("remark-0004", "labeller", lease.token, "note", "")
    assert "Flags and notes" not in site.as_role("viewer").get("/quality").text


def test_differences_are_found_and_nothing_is_lost():
    one, other = differences("the red house is old", "the blue house is very old")
    assert "".join(piece.text for piece in one) == "the red house is old"
    assert "".join(piece.text for piece in other) == "the blue house is very old"
    assert [piece.text.strip() for piece in one if piece.differs] == ["red"]
    assert [piece.text.strip() for piece in other if piece.differs] == ["blue", "very"]


def test_differences_are_marked_only_where_answers_are_alike():
    alike = (
        "The terrace is closed this year. Tables are booked by phone.",
        "The terrace is open this year. Book by phone.",
    )
    other = "The terrace is closed this year. Our team is here for you all day.", "Our wine comes from abroad, as ever."
    assert any(piece.differs for side in differences(*alike) for piece in side)
    assert [[piece.text for piece in side] for side in differences(*other)] == [[text] for text in other]
    assert not any(piece.differs for side in differences(*other) for piece in side)


@pytest.mark.parametrize(("a", "b"), [("same", "same"), ("", ""), ("", "x"), ("w " * MOST_PIECES, "v " * MOST_PIECES)])
def test_differences_of_odd_texts(a, b):
    for pieces, text in zip(differences(a, b), (a, b), strict=True):
        assert "".join(piece.text for piece in pieces) == text


# ---- for owners and viewers


def test_asking_for_an_action_asks_first(site):
    client = site.as_role("owner")
    page = client.get("/act?action=beta&value=0.25").text
    assert "Change beta to 0.25?" in page
    assert site.site.requests.pending() == []
    key = re.search(r'name="key" value="([^"]+)"', page)[1]
    fields = site.form("owner", action="beta", value="0.25", key=key, reason="too loose")
    for _ in range(2):  # a form that is sent twice asks once
        assert client.post("/act", data=fields).status_code == 303
    (request,) = site.site.requests.pending()
    assert (request.action, request.arguments, request.asked_by) == ("beta", {"value": 0.25}, "owner")
    client.post("/act/withdraw", data=site.form("owner", number=str(request.id)))
    assert site.site.requests.pending() == []


@pytest.mark.parametrize(
    "query",
    [
        "action=explode",
        "action=beta&value=x",
        "action=beta&value=-1",
        "action=beta&value=inf",
        "action=rollback",
        "action=reward",
        "action=reward&version=0",
        "action=reward&version=two",
    ],
)
def test_an_action_that_makes_no_sense_is_refused(site, query):
    reply = site.as_role("owner").get(f"/act?{query}")
    assert reply.status_code == 400
    assert "<h1>" in reply.text


def test_what_people_said_in_an_audit_can_be_looked_at(site):
    items = web_site.pairs(2)
    site.site.store.add_comparisons(items)
    site.site.store.add_labels([Label(items[0].id, "ben", Choice.A)])
    page = site.as_role("viewer").get("/answers?round=1&kind=audit").text
    assert "1 of 2 comparisons answered" in page
    assert "ben" in page
    assert "first answer 0" in page


def test_a_long_audit_is_shown_page_by_page(site):
    items = web_site.pairs(70)
    site.site.store.add_comparisons(items)
    site.site.store.add_labels([Label(item.id, "ben", Choice.A) for item in items])
    viewer = site.as_role("viewer")
    first, second = (viewer.get(f"/answers?round=1&kind=audit&start={start}").text for start in (0, 60))
    assert "70 of 70 comparisons answered" in first
    assert "70 of 70 comparisons answered" in second
    assert (first.count("<article"), second.count("<article")) == (60, 10)
    assert "start=60" in first
    assert "start=0" in second


def test_an_audit_after_an_owner_changed_something_is_found(site):
    items = web_site.pairs(2, "run/audit-r0001+1-")
    site.site.store.add_comparisons(items)
    assert "0 of 2 comparisons answered" in site.as_role("viewer").get("/answers?round=1&kind=audit").text


def test_quality_on_a_page(site):
    items = web_site.pairs(40, "run/r0001-")
    site.site.store.add_comparisons(items)
    for item in items:
        site.site.store.add_labels([Label(item.id, name, Choice.A) for name in ("ben", "cleo")])
    page = site.as_role("viewer").get("/quality").text
    assert "ben" in page
    assert "100%" in page
    assert "reliable" in page


def test_samples_are_sorted_as_asked(site):
    rows = [("short", 0.1, 0.3, 0), ("fine words here", 0.9, 0.1, 0), ("again " * 40, 0.5, 0.2, 1)]
    (site.site.run.path / "samples.jsonl").write_text(
        "".join(
            f'{{"step": {step}, "round": {step}, "prompt_index": {n}, "prompt": "p{n}", "response": "{text.strip()}", '
            f'"finished": true, "score": {score}, "spread": {spread}}}\n'
            for n, (text, score, spread, step) in enumerate(rows)
        )
    )
    client = site.as_role("viewer")

    def order(sort):
        for _ in range(50):
            page = client.get(f"/samples?sort={sort}").text
            if found := re.findall(r'<h3 dir="auto">(p\d)</h3>', page):
                return found
            time.sleep(0.1)
        return []

    assert order("reward") == ["p1", "p2", "p0"]
    assert order("disagreement") == ["p0", "p2", "p1"]
    assert order("suspicion")[0] == "p2"
    assert order("round")[0] == "p2"


def sample(step: int, prompt: int, response: str) -> str:
    row = {"step": step, "round": step, "prompt_index": prompt, "prompt": f"p{prompt}", "response": response}
    return json.dumps({**row, "finished": True, "score": 0.5, "spread": 0.1}) + "\n"


def test_answers_are_shown_before_and_after_side_by_side(site):
    """Before is the first answer; after is that of the policy the run stands on, and not of one that was undone."""
    run = site.site.run.path
    steps = [json.dumps({"step": n, "round": n, "objective/scores": 0.1, "control/lr": 0.1}) + "\n" for n in (1, 2)]
    (run / "metrics.jsonl").write_text("".join(steps))
    back = {"to": "round-0001", "step_from": 2, "step_to": 1, "reason": "worse", "undone": [[1, 2]]}
    (run / "events.jsonl").write_text(json.dumps({"step": 2, "round": 2, "event": "rollback", **back}) + "\n")
    rows = [sample(step, n, f"answer {n} at {step}") for step in (0, 1, 2) for n in (0, 1)]
    (run / "samples.jsonl").write_text("".join(rows))
    page = until_there(site.as_role("viewer"), "/samples", "answer 1 at 1")
    cards = re.findall(r"<article.*?</article>", page, re.DOTALL)
    assert len(cards) == 2
    for card in cards:
        n = re.search(r"<h3[^>]*>p(\d)", card)[1]
        before, after = re.findall(r'<div class="answer.*?<div class="text"[^>]*>(.*?)</div>', card, re.DOTALL)
        assert (before, after) == (f"answer {n} at 0", f"answer {n} at 1")
    assert "answer 0 at 2" not in page
    assert "answer 0 at 2" in site.as_role("viewer").get("/samples?view=rounds").text


def until_there(client, address: str, words: str) -> str:
    for _ in range(50):
        page = client.get(address).text
        if words in page:
            return page
        time.sleep(0.1)
    raise AssertionError(f"{words!r} is not on {address}")


def test_a_waiting_run_leads_to_the_label_page_and_says_why(site):
    items = web_site.pairs(3)
    site.site.store.add_comparisons(items)
    site.site.queue.put(
        items[0].id, items, [None] * 3, "audit of round 2: further audit pairs: the answers leave it open"
    )
    page = site.as_role("owner").get("/").text
    assert '<a class="button main" href="/label">Label them</a>' in page
    assert "3 of 3 pairs to go" in page
    assert "the answers leave it open" in page
    assert "the answers leave it open" in site.as_role("labeller").get("/label").text
    watching = site.as_role("viewer").get("/live/waits").text
    assert "waits for people" in watching
    assert "/label" not in watching
    for item in items:
        lease = site.site.queue.next("labeller")
        site.site.queue.submit(f"answer-{item.id}", "labeller", lease.token, "left")
    assert "waits for people" not in site.as_role("owner").get("/live/waits").text


def test_the_dashboard_says_how_many_comparisons_to_expect(site):
    items = web_site.pairs(1)
    site.site.store.add_comparisons(items)
    site.site.queue.put(items[0].id, items, [None], "the first comparisons")
    page = site.as_role("owner").get("/").text
    demand = label_demand(site.site.config)
    assert f"Expected in all: {demand.total.words()}" in page
    for name, number in demand.rows():
        assert f"<dt>{name}</dt><dd>{number}</dd>" in page


@pytest.mark.parametrize(("kind", "offered"), [("resumed", True), ("run_finished", False), ("stopped", False)])
def test_a_run_that_has_ended_offers_no_pause(site, kind, offered):
    fields = {"resumed": {"checkpoint": "round-0001"}, "stopped": {"reason": "enough"}}.get(kind, {})
    row = {"step": 1, "round": 1, "event": kind, "time": "2026-01-01T00:00:00+00:00", **fields}
    (site.site.run.path / "events.jsonl").write_text(json.dumps(row) + "\n")
    client = site.as_role("owner")
    words = {"resumed": "Pause", "run_finished": "The run has finished", "stopped": "The guard has stopped"}[kind]
    page = until_there(client, "/live/aside", words)
    assert ('value="pause"' in page) == offered
    assert ('value="audit"' in page) == offered
    assert ('value="beta"' in page) == (kind != "run_finished")
    assert 'value="rollback"' in page


def test_several_runs_in_one_chart(site):
    other = web_site.make_run(site.site.run.path.parent / "other")
    rows = ['{"step": 1, "round": 1, "objective/kl": 1}', '{"step": 2, "round": 1, "objective/kl": 2}']
    (other.path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    page = site.as_role("viewer").get("/compare?run=run&run=other&run=../../etc").text
    assert "KL to the reference" in page
    assert ">other" in page
    assert "etc" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.S)
