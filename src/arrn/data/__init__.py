"""Labelled images: by name, from parquet files, from folders; looked over, and split for validation."""

from arrn.data.catalog import Dataset, list_datasets, open_dataset
from arrn.data.cifar import CifarBatches
from arrn.data.decoding import decode, header_size
from arrn.data.examining import Examined, examine
from arrn.data.folder import ImageFolder
from arrn.data.holdout import hold_out
from arrn.data.parquet import ParquetImages
from arrn.data.source import BadSample, Selection, Source

__all__ = [
    "BadSample",
    "CifarBatches",
    "Dataset",
    "Examined",
    "ImageFolder",
    "ParquetImages",
    "Selection",
    "Source",
    "decode",
    "examine",
    "header_size",
    "hold_out",
    "list_datasets",
    "open_dataset",
]
