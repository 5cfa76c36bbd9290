"""Labelled images: by name, from parquet files, from folders."""

from arrn.data.catalog import Dataset, list_datasets, open_dataset
from arrn.data.parquet import ParquetImages
from arrn.data.source import BadSample, Selection, Source

__all__ = [
    "BadSample",
    "Dataset",
    "ParquetImages",
    "Selection",
    "Source",
    "list_datasets",
    "open_dataset",
]
