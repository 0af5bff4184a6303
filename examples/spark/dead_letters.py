"""Look at dead letters, plan a replay, run it, see what became of them.

A cell begins with `# %%`, so editors and Jupyter (with jupytext) run it piece by piece. As a program:
`python dead_letters.py BOOTSTRAP_SERVERS GROUP FOLDER [TOPIC_PREFIX]`.
"""

# %% A session with the Kafka connector. On a cluster or a hosted Spark, take the one that is there.
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.spark_connectors import configure, create_views, read_dead_letters
from reconsume.spark_connectors.replay import histogram, plan_replay, replay_report, run_replay

servers, group, folder, prefix = [*sys.argv[1:], "reconsume."][:4]
spark = configure(SparkSession.builder.appName("dead letters")).getOrCreate()

# %% What died, and why?
dead = read_dead_letters(spark, servers, [group], topic_prefix=prefix)
dead.groupBy("cause", F.date_trunc("hour", "appended").alias("hour")).count().orderBy("hour").show(truncate=False)

# %% The same in SQL, joined with what is on its way back.
create_views(spark, servers, topic_prefix=prefix)
spark.sql(
    """
    SELECT d.group, count(DISTINCT d.origin_message_id) AS dead, count(DISTINCT r.origin_message_id) AS were_retried
    FROM reconsume_dead_letters d LEFT JOIN reconsume_retries r USING (group, origin_message_id)
    GROUP BY d.group
    """
).show(truncate=False)

# %% What would run again? Nothing is sent here.
plan = plan_replay(spark, servers, folder, where="cause LIKE '%timeout%'", groups=[group], topic_prefix=prefix)
print(plan.counts)
for cause, status, count in histogram(spark, plan, "cause").rows:
    print(f"{count:>8}  {status:<10}  {cause}")

# %% Send it, at most 500 a second. Run this cell again: it sends nothing.
result = run_replay(spark, servers, plan, rate=500, progress=lambda at: print(f"{at.before + at.sent} of {at.total}"))
print(f"sent {result.sent} now, {result.before} before")

# %% Where are they? Schedulers deliver what was sent; look again later.
report = replay_report(spark, servers, plan)
report.groupBy("outcome").count().show()
