"""Labelled images: by name, from parquet files, from folders; looked over, split, and made into batches."""

from arrn.data.augmentation import Augmentation, Normalisation
from arrn.data.batches import Batch, Batches, MemoryBatches, StreamedBatches
from arrn.data.buckets import Bucket, fits_in_memory, load_buckets
from arrn.data.catalog import Dataset, list_datasets, open_dataset
from arrn.data.cifar import CifarBatches
from arrn.data.decoding import decode, header_size
from arrn.data.examining import Examined, examine
from arrn.data.folder import ImageFolder
from arrn.data.holdout import hold_out
from arrn.data.opening import open_batches
from arrn.data.parquet import ParquetImages
from arrn.data.placement import Placement
from arrn.data.source import BadSample, Selection, Source
from arrn.data.statistics import measure_statistics
from arrn.data.trivial_augment import TrivialAugmentWide

__all__ = [
    "Augmentation",
    "BadSample",
    "Batch",
    "Batches",
    "Bucket",
    "CifarBatches",
    "Dataset",
    "Examined",
    "ImageFolder",
    "MemoryBatches",
    "Normalisation",
    "ParquetImages",
    "Placement",
    "Selection",
    "Source",
    "StreamedBatches",
    "TrivialAugmentWide",
    "decode",
    "examine",
    "fits_in_memory",
    "header_size",
    "hold_out",
    "list_datasets",
    "load_buckets",
    "measure_statistics",
    "open_batches",
    "open_dataset",
]
