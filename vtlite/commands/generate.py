"""`vtlite generate`: one prompt, one answer, on standard output."""

import argparse
import json
import secrets
import sys

from vtlite.commands.model import add_engine, add_model, add_sampling, load_llm, sampling_options
from vtlite.commands.terminal import notice, read_text, stream
from vtlite.errors import RequestError

MAX_TOKENS = 512
NOTES = """
A model with a chat template is asked the prompt as a user's message, because that is what it was trained to answer.
One without a template, or any model with --raw, continues the prompt as a text.

Standard output holds the answer and nothing else; figures go to standard error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOTES
    add_model(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-p", "--prompt", metavar="TEXT", help="what to answer or continue")
    source.add_argument("-f", "--prompt-file", metavar="FILE",
                        help="read the prompt from a file, - = standard input; a last line break is not part of it")
    parser.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    parser.add_argument("--system", metavar="TEXT", help="system message for the chat template")
    parser.add_argument("--logprobs", type=int, metavar="K",
                        help="show each token's logprob and its K likeliest alternatives after the answer")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object: text, token ids, logprobs, usage, seed")
    add_sampling(parser, MAX_TOKENS)
    add_engine(parser)


def run(args: argparse.Namespace) -> int:
    if args.raw and args.system is not None:
        raise RequestError("--system belongs to the chat template, which --raw leaves out; give one of the two", "system")
    given = sampling_options(args)
    given.setdefault("seed", secrets.randbits(32))       # drawn here so that it can be told
    prompt = _prompt(args)

    from vtlite.checkpoint.chat_template import ChatTemplate
    from vtlite.checkpoint.resolve import resolve
    directory = resolve(args.model)
    chat = not args.raw and (args.system is not None or bool(ChatTemplate(directory).templates))
    llm = load_llm(directory, args)

    from vtlite.commands.answer import Answer
    if chat:
        system = [] if args.system is None else [{"role": "system", "content": args.system}]
        prompt = llm.render(system + [{"role": "user", "content": prompt}])
    answer = Answer(llm.engine, llm.tokenizer.encode(prompt, add_special_tokens=not chat),
                    llm.engine.sampling_params(**given))
    if args.json:
        return _print_json(answer, directory)
    return _print_text(answer)


def _prompt(args: argparse.Namespace) -> str:
    """The prompt from wherever it was given; RequestError if there is none."""
    if args.prompt is not None:
        prompt = args.prompt
    elif args.prompt_file is not None or not sys.stdin.isatty():
        prompt = read_text(args.prompt_file or "-")
    elif args.model is not None and " " in args.model:
        raise RequestError(f"there is no prompt; did you mean --prompt {args.model!r}?", "prompt")
    else:
        raise RequestError("there is no prompt; give --prompt TEXT or --prompt-file FILE, or pipe one in", "prompt")
    if not prompt:
        raise RequestError("the prompt is empty; at least one character is needed", "prompt")
    return prompt


def _print_text(answer) -> int:
    stream(answer)
    if not answer.output.text.endswith("\n"):
        print()
    if answer.output.logprobs:
        _print_logprobs(answer.output)
    seed = "" if answer.params.greedy else f"; seed {answer.params.seed}"
    notice(answer.summary() + seed)
    return 130 if answer.interrupted else 0


def _print_json(answer, directory) -> int:
    for _ in answer:
        pass
    if answer.interrupted:
        return 130
    output = answer.output
    prompt_tokens, completion_tokens = len(answer.prompt_ids), len(output.token_ids)
    print(json.dumps({
        "model": str(directory),
        "text": output.text,
        "token_ids": output.token_ids,
        "logprobs": output.logprobs and [_logprobs_json(at, answer.params.logprobs) for at in output.logprobs],
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens,
                  "total_tokens": prompt_tokens + completion_tokens},
        "seed": answer.params.seed,
    }, ensure_ascii=False))
    return 0


def _logprobs_json(at: dict, top: int) -> dict:
    """The chosen token of one position, and the `top` likeliest ones under "top"."""
    entries = [{"token": p.decoded_token, "token_id": token_id, "logprob": p.logprob, "rank": p.rank}
               for token_id, p in at.items()]
    return {**entries[0], "top": sorted((e for e in entries if e["rank"] <= top), key=lambda e: e["rank"])}


def _print_logprobs(output) -> None:
    """A line per token: how likely it was, and what else could have come."""
    import math

    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("token", "logprob", "probability", "", "rank", "alternatives",
                  box=None, header_style="bold", padding=(0, 1))
    for column in (1, 2, 4):
        table.columns[column].justify = "right"
    for token_id, at in zip(output.token_ids, output.logprobs):
        chosen = at[token_id]
        others = "  ".join(f"{p.decoded_token!r} {math.exp(p.logprob):.1%}" for i, p in at.items() if i != token_id)
        probability = math.exp(chosen.logprob)
        table.add_row(Text(repr(chosen.decoded_token)), f"{chosen.logprob:.4f}", f"{probability:.1%}",
                      Bar(1, 0, probability, width=12), str(chosen.rank), Text(others, style="dim"))
    Console().print(table)
