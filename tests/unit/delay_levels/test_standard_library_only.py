"""The rules run anywhere: a Spark job takes them without Kafka's client."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

from reconsume import delay_levels

IMPORT_ALL = """
import importlib, json, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_the_rules_loads_nothing_but_the_standard_library() -> None:
    modules = ["reconsume.delay_levels"]
    modules += [module.name for module in pkgutil.walk_packages(delay_levels.__path__, "reconsume.delay_levels.")]
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *modules], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(run.stdout))
    assert set(modules) <= loaded
    assert len(modules) > 8
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"reconsume", *modules}
