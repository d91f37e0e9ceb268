"""`vtlite serve`: an HTTP server with OpenAI's API."""

import argparse
import os
import re
import socket

from vtlite.commands.model import add_engine, add_model, load_llm
from vtlite.commands.terminal import notice
from vtlite.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Left-out sizes are chosen to fit this machine. Ctrl-C shuts the server down."
    add_model(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 lets other machines in "
                                                            "(default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="default: 8000; 0 takes a free one")
    parser.add_argument("--served-model-name", nargs="+", metavar="NAME", help="names that requests may use; "
                                                                              "default: MODEL")
    parser.add_argument("--api-key", default=os.environ.get("VTLITE_API_KEY"), metavar="KEY",
                        help="refuse requests without this bearer token; default: $VTLITE_API_KEY, which other users of "
                             "this machine cannot see in the process list")
    engine = add_engine(parser)
    engine.add_argument("--max-num-seqs", type=int, metavar="N", help="requests that run at once (default: 256)")
    engine.add_argument("--max-num-batched-tokens", type=int, metavar="N",
                        help="tokens per step; long prompts are cut into such pieces (default: 512, on a GPU 8192)")
    engine.add_argument("--kv-cache-bytes", type=_bytes, metavar="SIZE",
                        help="memory for the KV cache, such as 2G or 512M; default: a quarter of what is free, up to 4G; "
                             "on a GPU what --gpu-memory-utilization leaves")
    engine.add_argument("--block-size", type=int, metavar="N", help="tokens per block of the KV cache (default: 16)")
    engine.add_argument("--no-enable-prefix-caching", dest="enable_prefix_caching", action="store_false",
                        help="compute every prompt in full, even if its beginning was seen before")
    engine.add_argument("--state-cache-bytes", type=_bytes, metavar="SIZE",
                        help="memory for recurrent states of prompts seen before, for models that have such a state; "
                             "default: an eighth of what states may take")
    engine.add_argument("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs",
                        help="which request goes first: the first that came, or the lowest priority number "
                             "(default: fcfs)")


def run(args: argparse.Namespace) -> int:
    _check_address(args.host, args.port)

    from vtlite.checkpoint.resolve import DEFAULT_MODEL, resolve
    names = args.served_model_name or [args.model or DEFAULT_MODEL]
    engine = load_llm(resolve(args.model), args).engine
    if args.host not in LOOPBACK and not args.api_key:
        notice(f"Listening on {args.host} without --api-key: whoever can reach this machine can use the model.")

    from vtlite.serve.run import serve
    serve(engine, args.host, args.port, names, args.api_key)
    return 0


def _check_address(host: str, port: int) -> None:
    """ConfigError if nothing can listen there; found out now and not after the model is loaded."""
    if not 0 <= port < 2**16:
        raise ConfigError(f"port should be in [0, 65535], found {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except socket.gaierror:
        raise ConfigError(f"host {host!r} is not an address of this machine; try --host 127.0.0.1") from None
    except PermissionError:
        raise ConfigError(f"port {port} is reserved for the system; choose one from 1024 on with --port") from None
    except OSError as error:
        raise ConfigError(f"nothing can listen on {host} port {port} ({error.strerror}); choose another with --port "
                          "(0 takes a free one), or end what uses it") from None


def _bytes(text: str) -> int:
    """"512M" -> 512 * 2**20."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size such as 2G, 512M or 1073741824, found {text!r}")
    return int(float(match[1]) * UNITS[match[2].upper()])
