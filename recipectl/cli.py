"""The command line: options and help, nothing else. Each verb calls one function of `recipectl.commands`.

Heavy modules are imported inside the verbs, so that `--help` answers in under 0.15 s.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recipectl import __version__
from recipectl.calling import call, unwritten, wrong_line
from recipectl.errors import Interrupted

app = typer.Typer(
    name="recipectl",
    help=(
        "Pin, build, serve and measure speculative-decoding recipes on GB300, DGX Station and DGX Spark.\n\n"
        "NAME may be left out of every verb: then it is the recipe of `recipectl use`, the one live deployment, the "
        "recipe last pulled, or glm53-flash-dflash2. The choice is printed."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

NOTHING: list[str] = []  # default of options that may be given many times
Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Recipe name, or path of a recipe.yaml.", show_default=False)
]
Live = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="Recipe, or deployment as `recipectl status` names it. Default: what is live.",
        show_default=False,
    ),
]  # fmt: skip
Sm = Annotated[
    str | None,
    typer.Option("--sm", metavar="SM", help="SM family: 100, 103, 121, 90 or cpu. Default: this machine's GPU."),
]
AnySm = Annotated[
    str | None, typer.Option("--sm", metavar="SM", help="SM family: 100, 103, 121, 90 or cpu. Default: every lane.")
]
Variant = Annotated[
    str | None, typer.Option("--variant", metavar="NAME", help="A variant of the lane, such as eager or mtp.")
]
K = Annotated[
    int | None, typer.Option("--k", metavar="N", help="Speculative tokens a step, under the recipe's K rules.")
]
Sets = Annotated[
    list[str],
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value, such as args.max_model_len=8192. Recorded."),
]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document on stdout.")]
Drafter = Annotated[
    str | None,
    typer.Option(
        "--drafter", metavar="NAME|PATH", help="Another drafter of the recipe, or any folder, under the same rules."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print the whole plan and stop.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="Parallel jobs. Default: cores, 2 on unified memory."),
]
Accept = Annotated[
    list[str],
    typer.Option(
        "--accept-license", metavar="SPDX", help="Record that you accept this license, such as CC-BY-NC-ND-4.0."
    ),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts", metavar="HOST,...", help="Hosts of the ranks: ssh://user@host, unix:///path, a docker context."
    ),
]
Unqualified = Annotated[bool, typer.Option("--unqualified", help="Run against rule K002; the receipt is stamped.")]


class _State:
    """What the root options say, kept for the verb that follows."""

    recipes: Path | None = None
    quiet = False


def _version(show: bool) -> None:
    if show:
        typer.echo(f"recipectl {__version__} (recipe schema 1, lock schema 1, receipt schema 1)")
        raise typer.Exit


@app.callback()
def root(
    recipes: Annotated[
        Path | None, typer.Option("--recipes", metavar="DIR", help="Look for recipes here first.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notices.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    _State.recipes, _State.quiet = recipes, quiet


def _verb(declared: Callable[..., None]) -> Callable[..., None]:
    """A verb from its declaration, which is options and help: the work is `recipectl.commands.NAME.run` with them."""
    name = declared.__name__.removesuffix("_")

    @functools.wraps(declared)
    def run_verb(*, json: bool = False, **options: Any) -> None:
        raise typer.Exit(call(name, options, json_mode=json, quiet=_State.quiet, recipes=_State.recipes))

    app.command(name)(run_verb)
    return run_verb


@_verb
def list_(json: Json = False) -> None:
    """List the recipes, and which of them run here."""


@_verb
def show(
    name: Name = None,
    sm: Sm = None,
    variant: Variant = None,
    k: K = None,
    sets: Sets = NOTHING,
    drafter: Drafter = None,
    geometry: Annotated[
        bool, typer.Option("--geometry", help="KV bytes per token and page, drafter block, pool size.")
    ] = False,
    evidence: Annotated[bool, typer.Option("--evidence", help="Every value with its source, date and status.")] = False,
    argv: Annotated[bool, typer.Option("--argv", help="The exact engine argv of every rank.")] = False,
    json: Json = False,
) -> None:
    """Show a recipe with every K rule and its source.

    Models, the exact speculative config, composed capture sizes, each rule with its verdict.
    """


@_verb
def check(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME|FILE", help="Recipes, files, or overlays/NAME. Default: all.", show_default=False),
    ] = NOTHING,
    sm: AnySm = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of recipe.yaml and stop.")] = False,
    tree: Annotated[
        Path | None,
        typer.Option("--tree", metavar="DIR", help="For an overlay: the unpacked package to hold it against."),
    ] = None,
    rebase: Annotated[
        bool, typer.Option("--rebase", help="For an overlay: print patches regenerated for --tree.")
    ] = False,
    json: Json = False,
) -> None:
    """Check recipes and overlays, all findings at once.

    Each finding has file, line, rule and fix. Exit code 3 if there is an error.
    """


@_verb
def lock(
    name: Name = None,
    sm: AnySm = None,
    update: Annotated[
        Literal["target", "drafter", "all"] | None,
        typer.Option("--update", help="Resolve again what is already locked."),
    ] = None,
    dry_run: DryRun = False,
    accept_license: Accept = NOTHING,
    json: Json = False,
) -> None:
    """Resolve to commits and sha256, and show what changes."""


@_verb
def pull(
    name: Name = None,
    sm: Sm = None,
    variant: Variant = None,
    only: Annotated[Literal["target", "drafter"] | None, typer.Option("--only", help="One of the two models.")] = None,
    hosts: Hosts = None,
    jobs: Jobs = None,
    dry_run: DryRun = False,
    accept_license: Accept = NOTHING,
    json: Json = False,
) -> None:
    """Fetch what the lock names and verify every byte.

    Locks on first use and prints what it pinned; afterwards it only obeys the lock.
    """


@_verb
def verify(
    name: Name = None,
    sm: Sm = None,
    variant: Variant = None,
    full: Annotated[bool, typer.Option("--full", help="Read every byte again, whatever was remembered.")] = False,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Check models and images against the lock, offline."""


@_verb
def build(
    name: Name = None,
    sm: Sm = None,
    variant: Variant = None,
    dry_run: DryRun = False,
    fetch_patches: Annotated[
        bool, typer.Option("--fetch-patches", help="Download foreign patches after showing their license.")
    ] = False,
    patches: Annotated[
        Path | None, typer.Option("--patches", metavar="DIR", help="Take foreign patches from this folder.")
    ] = None,
    accept_license: Accept = NOTHING,
    json: Json = False,
) -> None:
    """Build the overlay image and prove it from inside.

    Patched files are hashed and the overlay's checks run in the image; a failed check deletes the tag.
    """


@_verb
def serve(
    name: Name = None,
    sm: Sm = None,
    variant: Variant = None,
    k: K = None,
    sets: Sets = NOTHING,
    drafter: Drafter = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port of the API. Default: a free one."),
    ] = None,
    hosts: Hosts = None,
    carry_image: Annotated[
        bool, typer.Option("--carry-image", help="Copy the head's image to hosts that lack it, `save` into `load`.")
    ] = False,
    expose: Annotated[
        str | None, typer.Option("--expose", metavar="ADDR", help="Listen on ADDR, with an API key.")
    ] = None,
    unqualified: Unqualified = False,
    dry_run: DryRun = False,
    accept_license: Accept = NOTHING,
    json: Json = False,
) -> None:
    """Launch a recipe; READY once every gate has passed."""


@_verb
def gate(
    name: Live = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep checking; exit with the reason when the server fails.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Seconds between checks with --watch.")
    ] = 10.0,
    json: Json = False,
) -> None:
    """Run the gates again on a live server."""


@_verb
def status(name: Live = None, json: Json = False) -> None:
    """Show the deployments and whether they are alive."""


@_verb
def logs(
    name: Live = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing.")] = False,
    rank: Annotated[int, typer.Option("--rank", metavar="N", min=0, help="Which rank's log.")] = 0,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="Only the last N lines; 0 for all.")
    ] = 0,
    json: Json = False,
) -> None:
    """Print the engine's log."""


@_verb
def stop(
    name: Live = None,
    all_: Annotated[bool, typer.Option("--all", help="Every deployment of this machine.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Kill what does not end by itself.")] = False,
    json: Json = False,
) -> None:
    """Stop a deployment, then list again what is left."""


@_verb
def bench(
    name: Live = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Any OpenAI-compatible server, instead of a deployment.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="With --url: the served model name.")
    ] = None,
    sm: Sm = None,
    phases: Annotated[
        str | None, typer.Option("--phases", metavar="NAME,...", help="Protocols. Default: counting,prose.")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", "-c", metavar="N,...", help="Streams at once. Default: 1,2,4.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens per request. Default: 200.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", min=1, help="Rounds per cell. Default: 3.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", min=0, help="Default: the protocol's (0, greedy).")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Prompt file for protocols that take one.")
    ] = None,
    lossless: Annotated[bool, typer.Option("--lossless", help="Teacher-forced losslessness check.")] = False,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Measure this client against a server with known timing.")
    ] = False,
    export: Annotated[
        Literal["vllm"] | None, typer.Option("--export", help="Also write the result in another tool's shape.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write result, raw chunks, scrapes and HTML here.")
    ] = None,
    accept_license: Accept = NOTHING,
    json: Json = False,
) -> None:
    """Measure tok/s, acceptance length and step time."""


@_verb
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A bench result: folder, receipt, or a recipe for its newest.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="The candidate result.", show_default=False)] = None,
    against: Annotated[
        Literal["published"] | None,
        typer.Option("--against", help="Hold a result against its recipe's published table."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare two results; exit code 10 on a regression.

    Better, worse, no change or inconclusive, from paired rounds with a confidence interval.
    """


@_verb
def report(
    receipt: Annotated[
        str | None, typer.Argument(metavar="RECEIPT", help="File or name. Default: the newest.", show_default=False)
    ] = None,
    format_: Annotated[Literal["text", "markdown", "html"], typer.Option("--format", help="How to print it.")] = "text",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write there instead of stdout.")] = None,
    json: Json = False,
) -> None:
    """Print a receipt again."""


@_verb
def experiment(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A frozen contract (YAML).")],
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Run a frozen contract: stages, thresholds, stop rule.

    Exit code 10 if it fails.
    """


@_verb
def notes(
    name: Name = None,
    sm: AnySm = None,
    format_: Annotated[
        Literal["text", "markdown", "json", "notice", "cyclonedx"], typer.Option("--format", help="How to print them.")
    ] = "text",
    json: Json = False,
) -> None:
    """Licenses, credits, obligations and amendments."""


@_verb
def doctor(name: Name = None, sm: Sm = None, hosts: Hosts = None, json: Json = False) -> None:
    """Check this machine for what a recipe needs."""


@_verb
def use(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Recipe name, or path of a recipe.yaml.")],
    json: Json = False,
) -> None:
    """Set the recipe meant when NAME is left out."""


@_verb
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new recipe.")],
    from_: Annotated[str, typer.Option("--from", metavar="NAME", help="Recipe to start from.")],
    json: Json = False,
) -> None:
    """Start a new recipe from an existing one."""


@_verb
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running.")] = False,
    json: Json = False,
) -> None:
    """The whole path on a real engine, no GPU needed.

    Check, lock, verify, serve, gate, bench, receipt, stop.
    """


def run(argv: list[str]) -> int:
    """Run one command line; the exit code of the process."""
    try:
        return app(args=argv, prog_name="recipectl", standalone_mode=False) or 0
    except typer.Abort:  # Ctrl-C before there was a verb
        return Interrupted.exit_code
    except OSError as error:  # help and version are printed by the parser
        return unwritten(error)
    except Exception as error:
        # The parser's own classes are private to typer.
        if not hasattr(error, "format_message"):
            raise
        asked = getattr(getattr(error, "ctx", None), "command_path", "recipectl")
        return wrong_line(error.format_message(), asked, argv)
