"""`holdfast guard`: the guard for a trainer that cannot take a callback, over HTTP, and what it has found so far."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_config_options, add_verb, config_of
from holdfast.errors import HoldfastError

SERVE = """\
examples:
  holdfast guard serve guard --token-file token --make-token          people answer the audits, on a page
  holdfast guard serve guard --token-file token --labeller judge --config judge.toml
  holdfast guard serve guard --token-file token --labeller my.py:ask  a function of (prompt, a, b)
A trainer begins a training with `PUT /trainings/NAME`, posts its answers and rewards, and is told verdicts and what to
do about them; holdfast/interop/guard_client.py is a client. `holdfast serve DIR/NAME` is the page on which people
answer a training's audits, and its dashboard. With --policy-url (and --reference-url, --anchor-url) audits' answers are
fetched from OpenAI-compatible endpoints, and the trainer is not asked for them. Everything that was acknowledged is
stored: stop the server when you like, and start it again. Ctrl-C ends it."""

VERDICT = """\
examples:
  holdfast guard verdict guard           the newest verdict of every training
  holdfast guard verdict guard/my-run    of one
exit code: 0; with --fail 1 where one of them is hacking or worse."""

GRACE_SECONDS = 30
PLAYERS = ("policy", "reference", "anchor")


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "guard", "guard a trainer that cannot take a callback, over HTTP", None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    serve = add_verb(actions, "serve", "serve the guard: batches and answers in, verdicts and advice out", work, SERVE)
    serve.add_argument("directory", type=Path, metavar="DIR", help="where trainings are kept; made if it is not there")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    serve.add_argument("--port", type=int, default=8714, help="port to listen on (8714); 0 takes a free one")
    serve.add_argument("--token-file", type=Path, metavar="FILE", help="the token to ask with (HOLDFAST_GUARD_TOKEN)")
    serve.add_argument("--make-token", action="store_true", help="write a new token to the file if it does not exist")
    serve.add_argument(
        "--labeller", default="people", metavar="WHO",
        help="who answers audits: people, judge, people+judge, or FILE.py:NAME (people)",
    )  # fmt: skip
    for player in PLAYERS:
        serve.add_argument(
            f"--{player}-url", default="", metavar="URL", help=f"an OpenAI-compatible endpoint of the {player}, .../v1"
        )
        serve.add_argument(f"--{player}-model", default="", metavar="NAME", help=f"what the {player} is called there")
    serve.add_argument("--json", action="store_true", help="print the address as JSON")
    add_config_options(serve)
    verdict = add_verb(actions, "verdict", "print the newest verdict of each training", look, VERDICT)
    verdict.add_argument("directory", type=Path, metavar="DIR", help="a server's directory, or that of one training")
    verdict.add_argument("--json", action="store_true", help="print them as JSON")
    verdict.add_argument("--fail", action="store_true", help="end with 1 where a training is hacking or worse")


def work(args: argparse.Namespace) -> int:
    from holdfast.serving.guard.service import GuardService
    from holdfast.serving.tokens import GUARD_TOKEN, Tokens, find_token

    token = find_token(args.token_file, GUARD_TOKEN, args.make_token, say)
    if token is None:
        raise HoldfastError(
            f"The guard needs a token: give --token-file FILE (with --make-token it is written) or set {GUARD_TOKEN}."
        )
    service = GuardService(args.directory, args.labeller, config_of(args), servers_of(args), say)
    try:
        return listen(args, service, Tokens.of(token))
    except KeyboardInterrupt:
        say("\nThe guard has stopped; all that it had acknowledged is stored.")
        return 130
    finally:
        service.close()


def servers_of(args: argparse.Namespace) -> dict[str, Any]:
    """The endpoints of policies, by whose they are."""
    from holdfast.serving.guard.policy_server import PolicyServer

    servers = {}
    for player in PLAYERS:
        url, model = getattr(args, f"{player}_url"), getattr(args, f"{player}_model")
        if bool(url) != bool(model):
            raise HoldfastError(f"--{player}-url and --{player}-model belong together; give both or neither.")
        if url:
            if not url.startswith(("http://", "https://")):
                raise HoldfastError(f"--{player}-url is {url!r}; write it like http://127.0.0.1:8000/v1.")
            servers[player] = PolicyServer(f"--{player}-url", url, model)
    return servers


def listen(args: argparse.Namespace, service: Any, tokens: Any) -> int:
    import uvicorn

    from holdfast.cli.serve import bind, server_config
    from holdfast.serving.guard.app import create_app
    from holdfast.web.site import LOOPBACK

    # Asked to end in either way, uvicorn finishes what it is answering and then raises the signal again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listener, address = bind(args.host, args.port)
    there = sorted(service.trainings)
    if args.json:
        print(json.dumps({"address": address, "directory": str(args.directory), "trainings": there}), flush=True)
    else:
        known = f", which has {', '.join(there)}" if there else ""
        print(f"serving the guard of {args.directory}{known} at {address}", flush=True)
    if args.host not in LOOPBACK:
        say("Tokens and answers travel in the clear; between machines put a proxy with TLS in front.")
    uvicorn.Server(server_config(create_app(service, tokens), GRACE_SECONDS)).run([listener])
    return 0


def look(args: argparse.Namespace) -> int:
    from holdfast.events.levels import ALARMS
    from holdfast.serving.guard.verdicts import verdicts_in

    found = verdicts_in(args.directory)
    if args.json:
        print(json.dumps({"trainings": found}))
    else:
        for name, verdict in found.items():
            said = "no verdict yet" if verdict is None else f"round {verdict['round']}  {verdict['level']}: "
            print(f"{name}  {said}{'' if verdict is None else verdict['sentence']}")
    alarmed = any(verdict is not None and verdict["level"] in ALARMS for verdict in found.values())
    return int(args.fail and alarmed)


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
