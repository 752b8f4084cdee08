"""Write reference/: the commands, the public names, settings, protocols, metrics, data sets.

Everything there comes from the code: signatures and docstrings from the sources, options from
the command, settings and their bounds from the methods. Run: python docs/make_reference.py
"""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import typer

import unexposed as ux
from unexposed import cli, settings
from unexposed.data.datasets import HOLDS
from unexposed.methods import about as about_method
from unexposed.ranking import metrics

FOLDER = Path(__file__).with_name("reference")
INDEX = "README.md"
HEAD = """\
# Reference

Written from the code by `docs/make_reference.py`, as part of `make docs`.
"""
# the public names by topic; the others are in tables
TOPICS = {
    "Data": "Clicks Impressions Judgements Ratings Traffic",
    "Inputs": "Features Side Split split with_items world",
    "Reading": "read_features read_judged read_log read_pairs read_traffic"
    " LogWarning InputError Interrupted",
    "Training": "make Recommender Estimator tune Study",
    "Models": "Model load load_partitions Rules export_model",
    "Evaluating": "compare Comparison describe evaluate Evaluation report Page",
}
REGISTRIES = {"PROTOCOLS", "DATASETS", "METHODS", "METRICS", "CRITERIA"}
LONGEST_LINE = 88
Lines = Iterator[str]


def reference() -> dict[str, str]:
    """Every page by its file name, the index among them."""
    lost = set(ux._HOME) - REGISTRIES - set(" ".join(TOPICS.values()).split())
    assert not lost, f"say in TOPICS where these belong: {', '.join(sorted(lost))}"
    group = typer.main.get_command(cli.app)
    commands = {f"{name}.md": _command(name, group.commands[name]) for name in group.commands}
    topics = {f"python-{title.lower()}.md": _python(title) for title in TOPICS}
    methods = {f"settings-{name}.md": _settings(name) for name in ux.METHODS}
    others = {"evaluating.md": _evaluating(), "data-sets.md": _datasets()}
    pages = {**commands, **topics, **methods, **others}
    written = {name: "\n".join(lines).strip("\n") + "\n" for name, lines in pages.items()}
    parts = {
        "Commands": (*sorted(commands), "`unexposed COMMAND --help` shows the same."),
        "In Python": (*topics, "After `import unexposed as ux`."),
        "Settings of the methods": (*methods, "`ux.METHODS` holds the methods by name."),
        "What can be named": (*others, "Protocols, metrics, criteria and data sets."),
    }
    return {INDEX: HEAD + "\n".join(_index(parts, written)) + "\n", **written}


def _index(parts: dict[str, tuple[str, ...]], written: dict[str, str]) -> Lines:
    for title, (*names, about) in parts.items():
        yield from ("", f"## {title}", "", about, "")
        for name in names:
            heading, _, rest = written[name].partition("\n")
            said = rest.strip().partition("\n")[0]
            yield f"- [{heading.removeprefix('# ')}]({name}): {said.rstrip('.')}"


# The command


def _command(name: str, command: typer.core.TyperCommand) -> Lines:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(["unexposed", name, *(_metavar(a) for a in arguments), "[OPTIONS]"])
    yield from (f"# unexposed {name}", "", _one_line(command.help), "", f"`{usage}`", "")
    yield from ("| | default | |", "|---|---|---|")
    for argument in arguments:
        yield _row(f"`{_metavar(argument)}`", "", argument.help)
    for option in options:
        names = ", ".join(f"`{opt}`" for opt in option.opts)
        yield _row(names, _default(option), option.help)


def _metavar(argument: typer.core.TyperArgument) -> str:
    return argument.metavar or str(argument.name).upper()


def _default(option: typer.core.TyperOption) -> str:
    if option.required:
        return "required"
    plain = option.default is not None and option.default is not False and option.default != []
    return f"`{option.default}`" if plain else ""


# The public names


def _python(topic: str) -> Lines:
    names = sorted(TOPICS[topic].split(), key=lambda name: (name.lower(), name))
    shown = ", ".join(f"`ux.{name}`" for name in names)
    yield from (f"# Python: {topic.lower()}", "", shown)
    for name in names:
        node = _definition(import_module(f"unexposed.{ux._HOME[name]}"), name)
        yield from ("", f"## ux.{name}", "")
        if isinstance(node, ast.FunctionDef):
            yield from ("```text", *_broken(f"ux.{name}", node), "```", "")
        yield _doc(node)
        body = [*_inherited(node), *node.body]
        members = [line for member in body for line in _member(member)]
        if isinstance(node, ast.ClassDef) and members:
            yield from ("", *members)


def _inherited(node: ast.FunctionDef | ast.ClassDef) -> list[ast.stmt]:
    """Members of the base that judgements and random traffic share."""
    bases = [ast.unparse(base) for base in getattr(node, "bases", [])]
    if "LabelledPairs" not in bases:
        return []
    found = _definition(import_module("unexposed.data.labelled"), "LabelledPairs").body
    return [member for member in found if "ClassVar" not in ast.unparse(member)]


def _definition(module: object, name: str) -> ast.FunctionDef | ast.ClassDef:
    tree = _Unquoted().visit(ast.parse(inspect.getsource(module)))
    (node,) = [n for n in tree.body if getattr(n, "name", None) == name]
    return node


class _Unquoted(ast.NodeTransformer):
    """Annotations without the quotes that forward references need."""

    def _plain(self, annotation: ast.expr | None) -> ast.expr | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return ast.parse(annotation.value, mode="eval").body
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) != "Literal":
            annotation.slice = self._plain(annotation.slice)
        if isinstance(annotation, ast.Tuple):
            annotation.elts = [self._plain(part) for part in annotation.elts]
        return annotation

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = self._plain(node.annotation)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = self._plain(node.returns)
        self.generic_visit(node)
        return node


def _member(node: ast.stmt) -> Lines:
    """A field, property or method of a class."""
    if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
        yield f"- `{ast.unparse(node.target)}: {ast.unparse(node.annotation)}`"
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        about = _one_line(ast.get_docstring(node))
        yield f"- `{_signature(node.name, node)}`" + (f": {about}" if about else "")


def _signature(name: str, node: ast.FunctionDef) -> str:
    """The signature as in the source; a property has no parameters."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    returns = ast.unparse(node.returns) if node.returns else "None"
    if decorators & {"property", "cached_property"}:
        return f"{name}: {returns}"
    return f"{name}({', '.join(_parameters(node.args))}) -> {returns}"


def _broken(name: str, node: ast.FunctionDef) -> Lines:
    """The signature, one parameter per line if it is long."""
    line = _signature(name, node)
    if len(line) <= LONGEST_LINE:
        yield line
        return
    yield f"{name}("
    yield from (f"    {part}," for part in _parameters(node.args))
    yield f") -> {ast.unparse(node.returns)}" if node.returns else ")"


def _parameters(arguments: ast.arguments) -> Lines:
    first = len(arguments.args) - len(arguments.defaults)
    for at, argument in enumerate(arguments.args):
        if argument.arg not in ("self", "cls"):
            yield _parameter(argument, arguments.defaults[at - first] if at >= first else None)
    if arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _doc(node: ast.FunctionDef | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").strip()


# Tables


def _settings(name: str) -> Lines:
    method = ux.METHODS[name]
    yield from (f"# Settings of {name}", "", f"{about_method(name)}.", "")
    yield from (_one_line(inspect.getdoc(method)), "")
    known = settings.known(method)
    if not known:
        yield "No settings."
        return
    yield f'Give them as `ux.make("{name}", setting=value)` or `--set setting=value`.'
    yield "`unexposed tune` searches what stands under *tuned over*: the values of a list, or"
    yield from ("between two ends, evenly by logarithm.", "")
    yield from ("| setting | default | allowed | tuned over | |", "|---|---|---|---|---|")
    for field, about in known.items():
        allowed, searched = settings.allowed(method, field), _searched(about.metadata["search"])
        said = about.metadata["about"]
        yield _row(f"`{field}`", f"`{about.default}`", allowed, searched, said)


def _searched(where: list[object] | tuple[float, float] | None) -> str:
    if where is None:
        return ""
    return ", ".join(map(str, where)) if isinstance(where, list) else f"{where[0]} … {where[1]}"


def _evaluating() -> Lines:
    yield from (
        "# Protocols, metrics and criteria",
        "",
        "By name, on the command line and in Python.",
    )
    yield from (*_protocols(), *_metrics(), *_criteria())


def _protocols() -> Lines:
    yield from ("", "## Protocols", "", "In `ux.PROTOCOLS`, and for `--protocol`.", "")
    yield from ("| name | what | metrics |", "|---|---|---|")
    for name, by in ux.PROTOCOLS.items():
        yield _row(f"`{name}`", by.about, ", ".join(by.metrics))


def _metrics() -> Lines:
    yield from ("", "## Metrics", "", "In `ux.METRICS`; `name@k` looks at the top k.", "")
    yield from ("| name | what |", "|---|---|")
    for name in ux.METRICS:
        yield _row(f"`{name}`", metrics.about(name))


def _criteria() -> Lines:
    yield from ("", "## Criteria", "", "In `ux.CRITERIA`, and for `--criterion`.", "")
    yield from ("| name | what |", "|---|---|")
    for name, by in ux.CRITERIA.items():
        yield _row(f"`{name}`", by.about)


def _datasets() -> Lines:
    yield from ("# Data sets", "", "In `ux.DATASETS`, and for `--dataset`.", "")
    yield from ("| name | | from | terms | a click is | holds |", "|---|---|---|---|---|---|")
    for name, dataset in ux.DATASETS.items():
        source = f"<{dataset.homepage}>"
        held = ", ".join(part for part in HOLDS if part in dataset.holds)
        yield _row(f"`{name}`", dataset.title, source, dataset.terms, dataset.clicks, held)
    yield ""
    yield from (f"- *{part}*: {what}" for part, what in HOLDS.items())


def _row(*cells: str | None) -> str:
    return "| " + " | ".join((cell or "").replace("|", r"\|") for cell in cells) + " |"


def _one_line(text: str | None) -> str:
    """The first paragraph."""
    return " ".join((text or "").partition("\n\n")[0].split())


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    pages = reference()
    for left in {path.name for path in FOLDER.glob("*.md")} - pages.keys():
        (FOLDER / left).unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
