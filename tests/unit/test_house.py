"""The house: rooms of a dozen modules, one name for one class, and a word at each door."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.source import PACKAGE, modules

MODULES_OF_A_FOLDER = 12
LINES_OF_A_FILE = 350
LINES_OF_A_FUNCTION = 50
MODULES_WITH_CONFLUENT_KAFKA = 31
"""It only goes down."""
BESIDE_THE_PACKAGE = ("tests", "benchmarks", "deploy", "examples")
NO_ROOM = ("__init__.py", "__main__.py")


def public_classes(tree: ast.Module) -> Iterator[str]:
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def test_no_folder_has_more_than_a_dozen_modules() -> None:
    folders: dict[Path, list[str]] = defaultdict(list)
    for path in modules():
        if path.name not in NO_ROOM:
            folders[path.parent].append(path.name)
    assert {str(folder): names for folder, names in folders.items() if len(names) > MODULES_OF_A_FOLDER} == {}


def test_no_folder_beside_the_package_has_more_than_a_dozen_modules() -> None:
    folders: dict[Path, list[str]] = defaultdict(list)
    for top in BESIDE_THE_PACKAGE:
        for path in (PACKAGE.parent / top).rglob("*.py"):
            if path.name not in (*NO_ROOM, "conftest.py"):
                folders[path.parent].append(path.name)
    assert folders
    assert {str(folder): names for folder, names in folders.items() if len(names) > MODULES_OF_A_FOLDER} == {}


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules().items():
        for name in public_classes(tree):
            places[name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_package_says_what_it_holds() -> None:
    folders = {path.parent for path in modules()}
    documented = {
        path.parent for path, tree in modules().items() if path.name == "__init__.py" and ast.get_docstring(tree)
    }
    assert sorted(map(str, folders - documented)) == []


def test_every_file_can_be_read_at_once() -> None:
    lengths = {str(path): len((PACKAGE / path).read_text("utf-8").splitlines()) for path in modules()}
    assert {path: length for path, length in lengths.items() if length > LINES_OF_A_FILE} == {}


def test_every_function_fits_on_a_screen() -> None:
    """From its first statement after the docstring on."""
    long = {}
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[ast.get_docstring(node) is not None :] or node.body
                length = (node.end_lineno or 0) - first[0].lineno + 1
                if length > LINES_OF_A_FUNCTION:
                    long[f"{path}:{node.name}"] = length
    assert long == {}


def test_every_workaround_names_when_it_goes() -> None:
    room = Path("bridge/librdkafka")
    texts = {path.name: (PACKAGE / path).read_text("utf-8") for path in modules() if path.parent == room}
    assert [name for name, text in texts.items() if name != "__init__.py" and "Remove when" not in text] == []


def test_the_modules_that_know_confluent_kafka_become_fewer() -> None:
    """A module that needs less of it goes from the count; one that is new talks to `bridge.kafka`."""
    knowing = [path for path, tree in modules().items() if "confluent_kafka" in set(imported(tree))]
    assert len(knowing) <= MODULES_WITH_CONFLUENT_KAFKA


def test_no_log_handler_ends_a_thread() -> None:
    """The command line and the helpers of Spark have no background threads; the others log through `SafeLogger`."""
    without_threads = ("cli", "spark_connectors")
    plain = [
        str(path)
        for path, tree in modules().items()
        if path.parts[0] not in without_threads
        and any(isinstance(node, ast.Attribute) and node.attr == "getLogger" for node in ast.walk(tree))
    ]
    assert plain == ["bridge/process/safe_logger.py"]


def imported(tree: ast.Module) -> Iterator[str]:
    """The packages that a module imports, by their first name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)


def test_a_process_of_ours_is_not_taken_from_the_current_folder() -> None:
    """`python -m reconsume` would run a user's own `reconsume.py`, and import his `logging.py`."""
    texts = {str(path): (PACKAGE / path).read_text("utf-8") for path in modules()}
    assert [name for name, text in texts.items() if 'sys.executable, "-m"' in text] == []
