"""The Spark side runs where only pyspark is installed."""

from __future__ import annotations

import subprocess
import sys

_ALONE = """
import sys
ALLOWED = set(sys.stdlib_module_names) | {"pyspark", "py4j", "reconsume"}
class OnlyPyspark:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ALLOWED and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(name + " is not installed here", name=name)
sys.meta_path.insert(0, OnlyPyspark())
try:
    import confluent_kafka
except ModuleNotFoundError:
    pass
else:
    sys.exit("the hook does nothing")
import importlib, pkgutil
import reconsume.spark_connectors as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
mine = sorted(name for name in sys.modules if name.startswith("reconsume."))
strangers = [name for name in mine if not name.startswith(("reconsume.spark_connectors", "reconsume.delay_levels"))]
sys.exit(f"imported too: {strangers}" if strangers else 0)
"""


def test_it_imports_with_only_pyspark_installed() -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", _ALONE], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
