#!/usr/bin/env python3
"""Builds the rows of a feature table with Spark, as Parquet parts sorted by key for `tierlab-models import-table`.

  spark-submit build_features.py --from s3a://lake/events/ --format parquet --key user_id --to s3a://lake/features/users/ \\
      --feature "clicks=sum(click)" --feature "spend=sum(price)" --vector dense=clicks,spend --parts 64

Writes one row per key. With --feature, SQL expressions aggregate the rows of a key; without it, a duplicate key keeps its latest row by
--latest COLUMN, or stops the job. --vector joins columns to one list of floats, in this order. Rows without a key are dropped and
counted. Parts have disjoint ranges of keys, so that each can be imported separately:

  tierlab-models import-table s3://lake/features/users/ --key user_id --name users --out /shared/features --part 1/4

On GPUs, RAPIDS runs the same job: set --rapids to the path of its jar.
Requires Spark 3.5 or later. Prints one line of JSON: rows, dropped rows, parts. Exits with 1 if the job fails.
"""
import argparse
import json
import sys

from pyspark.sql import SparkSession, functions
from pyspark.sql.window import Window


def named(text):
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"`{text}`: write it as NAME=VALUE")
    return name, value


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", required=True, nargs="+", metavar="PATH", help="files or folders")
    parser.add_argument("--format", default="parquet", choices=["parquet", "csv", "json", "orc"])
    parser.add_argument("--key", required=True, metavar="COLUMN")
    parser.add_argument("--to", required=True, metavar="FOLDER", help="must not exist")
    parser.add_argument("--where", metavar="SQL", help="condition of rows to use")
    parser.add_argument("--feature", action="append", default=[], type=named, metavar="NAME=SQL", help="aggregate over the rows of a key")
    parser.add_argument("--latest", metavar="COLUMN", help="without --feature: keeps the row with the largest value in this column")
    parser.add_argument("--vector", action="append", default=[], type=named, metavar="NAME=COLUMN,...")
    parser.add_argument("--integers", action="append", default=[], type=named, metavar="NAME=COLUMN,...", help="like --vector, for INT64")
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--rapids", metavar="JAR", help="run on GPUs with the RAPIDS plugin in this jar")
    given = parser.parse_args()
    if given.parts < 1:
        parser.error("--parts must be at least 1")
    if given.feature and given.latest:
        parser.error("--latest is not allowed with --feature, which aggregates all rows of a key")
    return given


def session(given):
    builder = SparkSession.builder.appName("tierlab features")
    if given.rapids:
        builder = builder.config("spark.plugins", "com.nvidia.spark.SQLPlugin").config("spark.jars", given.rapids)
    return builder.getOrCreate()


def one_row_a_key(rows, given):
    if given.feature:
        return rows.groupBy(given.key).agg(*(functions.expr(sql).alias(name) for name, sql in given.feature))
    if given.latest:
        order = Window.partitionBy(given.key).orderBy(functions.col(given.latest).desc())
        rank = functions.row_number().over(order)
        return rows.withColumn("__rank", rank).where("__rank = 1").drop("__rank")
    twice = rows.groupBy(given.key).count().where("count > 1").limit(1).collect()
    if twice:
        sys.exit(f"build_features: key {twice[0][0]!r} stands in {twice[0][1]} rows; say which counts with --latest, or --feature")
    return rows


def gathered(rows, given):
    for vectors, kind in ((given.vector, "float"), (given.integers, "bigint")):
        for name, columns in vectors:
            columns = columns.split(",")
            missing = [column for column in columns if column not in rows.columns]
            if missing:
                sys.exit(f"build_features: {name}: no column {', '.join(missing)}; there is {', '.join(rows.columns)}")
            rows = rows.withColumn(name, functions.array(*(functions.col(column).cast(kind) for column in columns)))
    used = {column for _, columns in given.vector + given.integers for column in columns.split(",")}
    return rows.drop(*used)


def main():
    given = options()
    spark = session(given)
    rows = spark.read.format(given.format)
    if given.format == "csv":
        rows = rows.option("header", True).option("inferSchema", True)
    rows = rows.load(given.source)
    if given.key not in rows.columns:
        sys.exit(f"build_features: --key: unknown column `{given.key}`; columns are {', '.join(rows.columns)}")
    if given.where:
        rows = rows.where(given.where)
    without_key = rows.where(functions.col(given.key).isNull()).count()
    rows = gathered(one_row_a_key(rows.where(functions.col(given.key).isNotNull()), given), given)
    # Ranges instead of hashes: each part is a contiguous range of keys, for one importer.
    parts = rows.repartitionByRange(given.parts, given.key).sortWithinPartitions(given.key)
    parts.write.mode("errorifexists").option("compression", "zstd").parquet(given.to)
    written = spark.read.parquet(given.to)
    print(json.dumps({"rows": written.count(), "without_key": without_key, "parts": len(written.inputFiles()), "to": given.to}))
    spark.stop()


if __name__ == "__main__":
    main()
