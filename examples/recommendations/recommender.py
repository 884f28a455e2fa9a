"""The step that trains: Spark ML's alternating least squares on how often each customer looked at each product.

Rule 1: a view is no rating. How often somebody looked says how sure we are that he is interested (implicit feedback).
Rule 2: nobody is shown what he has looked at already.
Rule 3: the seed is fixed and the views are sorted: an epoch that is done again gives the same results.
"""

from typing import Final

from pyspark.ml.recommendation import ALS
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

TOP: Final = 10
SEED: Final = 7


def top_ten(views: DataFrame) -> DataFrame:
    """A row for each customer: the best products with their scores, and how many views it is based on."""
    seen = views.groupBy("customer", "product").agg(F.count("*").alias("times")).orderBy("customer", "product")
    most = seen.groupBy("customer").count().agg(F.max("count")).first()
    if most is None or most[0] is None:  # No views yet: nothing to train on.
        return _rows(seen.withColumn("score", F.lit(0.0).cast("float")), seen)
    als = ALS(
        userCol="customer", itemCol="product", ratingCol="times", implicitPrefs=True, rank=8, maxIter=5, seed=SEED
    )
    offered = als.fit(seen).recommendForAllUsers(TOP + most[0])
    each = offered.select("customer", F.explode("recommendations").alias("one"))
    return _rows(each.select("customer", "one.product", F.col("one.rating").alias("score")), seen)


def _rows(offered: DataFrame, seen: DataFrame) -> DataFrame:
    by_score = Window.partitionBy("customer").orderBy(F.desc("score"), "product")
    best = (
        offered.join(seen, ["customer", "product"], "left_anti")
        .withColumn("place", F.row_number().over(by_score))
        .where(F.col("place") <= TOP)
    )
    lists = best.groupBy("customer").agg(
        F.sort_array(F.collect_list(F.struct("place", "product", "score"))).alias("ten")
    )
    views = seen.groupBy("customer").agg(F.sum("times").alias("views"))
    products = F.transform("ten", lambda one: F.struct(one["product"].alias("product"), one["score"].alias("score")))
    return lists.join(views, "customer").select("customer", products.alias("products"), "views")
