"""Ask the ten questions of docs/spark-questions.md, and draw what can be drawn.

A cell begins with `# %%`, so editors and Jupyter (with jupytext) run it piece by piece. As a program:
`python questions.py BOOTSTRAP_SERVERS FOLDER [TOPIC_PREFIX]`. The plots are SVG in one page, `questions.html`; in a
notebook, `IPython.display.HTML(drawn[-1])` shows one.
"""

# %% A session with the Kafka connector. On a cluster or a hosted Spark, take the one that is there.
import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from reconsume.spark_connectors import configure, create_views
from reconsume.spark_connectors.report.charts import columns, stacked_columns

servers, folder, prefix = [*sys.argv[1:], "reconsume."][:3]
spark = configure(SparkSession.builder.appName("questions")).getOrCreate()
create_views(spark, servers, topic_prefix=prefix)

# %% The attempts are read from Kafka once.
spark.table("reconsume_attempts").persist().createOrReplaceTempView("reconsume_attempts")

# %% All questions and their answers.
page = (Path(__file__).parents[2] / "docs" / "spark-questions.md").read_text(encoding="utf-8")
answers = {}
for number, title, query in re.findall(r"^## (\d+)\. ([^\n]*)\n.*?```sql\n(.*?)```", page, re.MULTILINE | re.DOTALL):
    print(f"{number}. {title}")
    answers[int(number)] = spark.sql(query)
    answers[int(number)].show(truncate=False)

# %% Failures by hour: those that are tried again, and those that are given up.
by_hour = answers[5].collect()
series = [
    ("a", "to be tried again", [row.failures - row.given_up for row in by_hour]),
    ("b", "given up", [row.given_up for row in by_hour]),
]
drawn = [stacked_columns([f"{row.hour:%d. %H:00}" for row in by_hour], series, "Failures by hour")]

# %% Retries until success, and how late deliveries are.
tries = answers[4].collect()
drawn.append(columns([str(row.retries) for row in tries], [row.messages for row in tries], "Retries until success"))
late = answers[6].collect()
drawn.append(columns([f"{row.delay_ms // 1000} s" for row in late], [max(0, row.p99) for row in late], "p99 in ms"))

# %% One page of all plots.
style = "<style>.a, .b { fill: #2f6fb3 } .b { fill: #c2571a } .grid { stroke: #ccc } .tick { font-size: 11px }</style>"
Path(folder, "questions.html").write_text(style + "".join(drawn), encoding="utf-8")
print(f"{Path(folder, 'questions.html')}: {len(drawn)} plots")
