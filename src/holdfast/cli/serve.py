"""`holdfast serve`: the labelling page and the dashboard of a run."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.cli.options import add_verb
from holdfast.errors import HoldfastError

DETAILS = """\
examples:
  holdfast serve runs/demo                       on this machine; prints a link to begin with
  holdfast serve runs/demo --add-owner anna      make an owner, whose password is asked for, and end
  holdfast serve runs/demo --host 0.0.0.0        for a team; needs an owner first
Start the run first: it makes the directory. From then on the server works, also when the run has stopped or ended.
It keeps nothing in memory that matters: stop it when you like. Ctrl-C ends it."""


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "serve", "serve a run's labelling page and live dashboard", work, DETAILS)
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN",
        help="a run directory, or a guarded trainer's output_dir; it may still be running",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)")
    parser.add_argument("--port", type=int, default=8712, help="port to listen on (8712); 0 takes a free one")
    parser.add_argument("--add-owner", metavar="NAME", help="make an owner's account and end")
    parser.add_argument(
        "--invite", choices=("owner", "labeller", "viewer"), help="print an invitation link, then serve"
    )


def work(args: argparse.Namespace) -> int:
    from holdfast.run.directory import RunDirectory
    from holdfast.web.site import open_site

    if not 0 <= args.port < 65536:
        raise HoldfastError(f"--port {args.port} is not a port; choose one from 0 to 65535.")
    site = open_site(RunDirectory.open(run_in(args.run)), args.host)
    if args.add_owner is not None:
        try:
            site.accounts.create(args.add_owner, password_for(args.add_owner), "owner")
        finally:
            site.close()
        print(f"{args.add_owner} is an owner of {args.run} now.")
        return 0
    if not site.is_local and not site.accounts.any():
        site.close()
        raise HoldfastError(
            f"On {args.host} others can reach the server, so it needs an account first: "
            f"`holdfast serve {args.run} --add-owner NAME`."
        )
    try:
        return listen(args, site)
    except KeyboardInterrupt:
        print("\nThe server has stopped; the run, and what people have answered, are as they were.", file=sys.stderr)
        return 130


def run_in(path: Path) -> Path:
    """The run directory that is meant: of a trainer's output directory the guard's, which lies in it."""
    inner = path / "holdfast"
    return inner if (inner / "manifest.json").is_file() and not (path / "manifest.json").exists() else path


def listen(args: argparse.Namespace, site: Any) -> int:
    """Bind first, so that a port that is taken is said in a sentence, then serve until told to end."""
    import uvicorn

    from holdfast.people.accounts import SERVER
    from holdfast.web.app import create_app

    try:
        listener, address = bind(args.host, args.port)
    except HoldfastError:
        site.close()
        raise
    print(f"serving {site.run.path} at {address}", flush=True)
    if not site.accounts.any():
        print(f"no account yet; make yourself the owner:  {address}/join/{site.accounts.invite('owner', SERVER)}")
    elif args.invite:
        print(f"invitation for one {args.invite}:  {address}/join/{site.accounts.invite(args.invite, SERVER)}")
    sys.stdout.flush()
    # While a long run is being read and drawn, visitors get their turn more often.
    sys.setswitchinterval(0.001)
    server = uvicorn.Server(server_config(create_app(site)))
    server.run([listener])
    if not server.should_exit:
        # It was told to end while it was starting, and asyncio has kept that to itself.
        raise KeyboardInterrupt
    return 0


def bind(host: str, port: int) -> tuple[Any, str]:
    """A socket that listens there, and its address for a browser."""
    import socket

    if not 0 <= port < 65536:
        raise HoldfastError(f"--port {port} is not a port; choose one from 0 to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From here on who connects is kept waiting and not turned away, though the server is still starting.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise HoldfastError(
            f"Cannot listen on {host} port {port} ({error.strerror or error}); choose another --port."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    return listener, f"http://{shown}:{listener.getsockname()[1]}"


def server_config(app: Any, grace_seconds: int = 3) -> Any:
    """How uvicorn serves the application; at the end requests that are being answered have the grace to finish."""
    import uvicorn

    from holdfast.web.connections import TimedConnection

    # Anybody can write a forwarding header: with a new address in each try nobody would ever have to wait.
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=grace_seconds,
        proxy_headers=False, http=TimedConnection,
    )  # fmt: skip


def password_for(name: str) -> str:
    """Asked for on the terminal; HOLDFAST_PASSWORD or a line on standard input where there is none."""
    if given := os.environ.get("HOLDFAST_PASSWORD"):
        return given
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass(f"Password for {name}: ")
    if password != getpass.getpass("Again: "):
        raise HoldfastError("The two passwords are not the same; try again.")
    return password
