"""Labelled images, volumes and sound: by name or from a root; looked over, split, and made into batches."""

from arrn.data.augmentation import Augmentation
from arrn.data.batches import Batch, Batches, MemoryBatches, StreamedBatches
from arrn.data.buckets import Bucket, fits_in_memory, load_buckets
from arrn.data.catalog import Dataset, list_datasets, open_dataset
from arrn.data.cifar import CifarBatches
from arrn.data.codec import PICTURES, Codec
from arrn.data.decoding import decode, header_size
from arrn.data.examining import Examined, examine
from arrn.data.folder import ClassFolders, ImageFolder
from arrn.data.form import IMAGE, SOUND, Form, word_for
from arrn.data.holdout import hold_out
from arrn.data.npz import NpzArrays
from arrn.data.opening import open_batches
from arrn.data.parquet import ParquetFiles
from arrn.data.placement import Placement
from arrn.data.single import read_input
from arrn.data.sound import SoundCodec, Window, fit_window
from arrn.data.source import BadSample, Selection, Source
from arrn.data.statistics import measure_statistics
from arrn.data.stl10 import Stl10Binary
from arrn.data.tinyimagenet import TinyImageNet
from arrn.data.trivial_augment import TrivialAugmentWide
from arrn.data.wav import WavHeader, decode_wav, wav_header
from arrn.signal.scaling import Normalisation, full_scale

__all__ = [
    "IMAGE",
    "PICTURES",
    "SOUND",
    "Augmentation",
    "BadSample",
    "Batch",
    "Batches",
    "Bucket",
    "CifarBatches",
    "ClassFolders",
    "Codec",
    "Dataset",
    "Examined",
    "Form",
    "ImageFolder",
    "MemoryBatches",
    "Normalisation",
    "NpzArrays",
    "ParquetFiles",
    "Placement",
    "Selection",
    "SoundCodec",
    "Source",
    "Stl10Binary",
    "StreamedBatches",
    "TinyImageNet",
    "TrivialAugmentWide",
    "WavHeader",
    "Window",
    "decode",
    "decode_wav",
    "examine",
    "fit_window",
    "fits_in_memory",
    "full_scale",
    "header_size",
    "hold_out",
    "list_datasets",
    "load_buckets",
    "measure_statistics",
    "open_batches",
    "open_dataset",
    "read_input",
    "wav_header",
    "word_for",
]
