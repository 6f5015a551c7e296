"""`holdfast serve-reward`: a run's reward ensemble, or a reward of yours, as a service for other trainers."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.options import add_config_options, add_verb, config_of, source_of
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.serving.service import ServedVersions

DETAILS = """\
examples:
  holdfast serve-reward runs/demo --token-file token --make-token     makes the token, then serves the run's ensemble
  holdfast serve-reward my-rm --policy ./my-sft --token-file token    an ensemble of `holdfast reward`
  holdfast serve-reward my_reward.py:score --token-file token         whatever reward.source may be
The trainers' addresses, with the token for TOKEN:
  OpenRLHF   --reward.remote_url http://127.0.0.1:8713/t/TOKEN/get_reward
  slime      --rm-type remote_rm --rm-url http://127.0.0.1:8713/t/TOKEN/slime
  OAT        --oracle remote --remote_rm_url http://127.0.0.1:8713/t/TOKEN
  verl       custom_reward_function.path=pkg://holdfast.interop.verl, with HOLDFAST_REWARD_URL and _TOKEN set
While the run goes on, the service takes up every version of the ensemble that the run accepts. It watches the answers
that it scores and says when they begin to look unlike the first ones; `GET /watch` tells more. Ctrl-C ends it."""

GRACE_SECONDS = 30


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs, "serve-reward", "score answers for other trainers with a run's reward, or one of yours", work, DETAILS
    )
    parser.add_argument(
        "source", metavar="REWARD",
        help="a run directory, a directory of `holdfast reward`, or what reward.source may be",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    parser.add_argument("--port", type=int, default=8713, help="port to listen on (8713); 0 takes a free one")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the token to ask with (HOLDFAST_REWARD_TOKEN)")
    parser.add_argument(
        "--owner-token-file", type=Path, metavar="FILE",
        help="the token to change the version with (HOLDFAST_REWARD_OWNER_TOKEN); without one nobody can",
    )  # fmt: skip
    parser.add_argument("--make-token", action="store_true", help="write new tokens to the files that do not exist")
    parser.add_argument("--ensemble-version", type=int, metavar="N", help="serve this version and stay with it")
    parser.add_argument(
        "--follow", type=float, default=2.0, metavar="SECONDS",
        help="how often to look for a new version (2); 0 never does",
    )  # fmt: skip
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="what a bare ensemble was trained on, for the watch"
    )
    parser.add_argument(
        "--chat-template", default="auto", choices=("auto", "plain", "rendered"),
        help="whether prompts have been through one already: seen by itself (auto), never (plain), always (rendered)",
    )  # fmt: skip
    parser.add_argument("--wait-ms", type=float, default=5.0, metavar="MS", help="collect requests this long (5)")
    parser.add_argument("--batch", type=int, default=256, metavar="N", help="answers scored in one pass (256)")
    parser.add_argument("--queue", type=int, default=4096, metavar="N", help="answers that may wait (4096), then 503")
    parser.add_argument("--window", type=int, default=64, metavar="N", help="answers in one window of the watch (64)")
    parser.add_argument(
        "--suspicion", type=float, default=0.001, metavar="P", help="tell what is less likely than this (0.001)"
    )
    add_config_options(parser, "policy")


def work(args: argparse.Namespace) -> int:
    from holdfast.serving.service import Service
    from holdfast.serving.tokens import OWNER_TOKEN, TOKEN, Tokens, find_token

    limits, watch = settings_of(args)
    asking = find_token(args.token_file, TOKEN, args.make_token, say)
    owning = find_token(args.owner_token_file, OWNER_TOKEN, args.make_token, say)
    if asking is None:
        raise HoldfastError(
            f"The service needs a token: give --token-file FILE (with --make-token it is written) or set {TOKEN}."
        )
    service = Service(open_source(args), args.ensemble_version, args.follow, limits, watch, say)
    try:
        return listen(args, service, Tokens.of(asking, owning))
    except KeyboardInterrupt:
        say("\nThe reward service has stopped; what it had accepted is answered.")
        return 130


def settings_of(args: argparse.Namespace) -> tuple[Any, Any]:
    """Limits and the watch's settings, checked."""
    from holdfast.serving.batcher import Limits
    from holdfast.serving.watch import WatchSettings

    for name, least in (("wait_ms", 0), ("batch", 1), ("queue", 1), ("window", 2), ("follow", 0)):
        if not getattr(args, name) >= least:
            raise HoldfastError(f"--{name.replace('_', '-')} is {getattr(args, name)}; it has to be at least {least}.")
    if not 0 < args.suspicion < 1:
        raise HoldfastError(f"--suspicion is {args.suspicion}; it has to be between 0 and 1.")
    return Limits(args.wait_ms, args.batch, args.queue), WatchSettings(window=args.window, level=args.suspicion)


def open_source(args: argparse.Namespace) -> ServedVersions:
    """A run knows its own settings and labels; a bare ensemble has to be told, and a reward of yours stands alone."""
    from holdfast.reward.ensemble import members_in
    from holdfast.run.directory import RunDirectory
    from holdfast.serving.versions import open_directory, open_given, open_run

    directory, source = source_of(args.source)
    if directory is None:
        if args.labels:
            raise HoldfastError("--labels is for a bare ensemble; leave it out.")
        return open_given(config_of(args, *source))
    args.source = directory
    if (args.source / "manifest.json").is_file():
        options = {"--policy": args.policy, "--config": args.config, "--set": args.overrides, "--labels": args.labels}
        for option, value in options.items():
            if value:
                raise HoldfastError(f"{option} is for a bare ensemble; {args.source} is a run and has its own.")
        config = RunDirectory.open(args.source).config()
        return open_given(config) if config.reward.given else open_run(args.source, args.chat_template)
    members = members_in(args.source)
    config = config_of(args, f"reward.members={members}", "sft.epochs=0")
    return open_directory(args.source, config, args.labels, args.chat_template)


def listen(args: argparse.Namespace, service: Any, tokens: Any) -> int:
    import uvicorn

    from holdfast.cli.serve import bind, server_config
    from holdfast.serving.app import create_app
    from holdfast.web.site import LOOPBACK

    # Asked to end in either way, uvicorn finishes what it is answering and then raises the signal again.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listener, address = bind(args.host, args.port)
    print(f"serving version {service.scorer.version} of {args.source} at {address}", flush=True)
    if args.host not in LOOPBACK:
        say("Tokens and answers travel in the clear; between machines put a proxy with TLS in front.")
    uvicorn.Server(server_config(create_app(service, tokens), GRACE_SECONDS)).run([listener])
    return 0


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
