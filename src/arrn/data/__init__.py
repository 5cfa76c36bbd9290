"""Labelled images, volumes and sound: by name or from a root; looked over, split, and made into batches."""

from arrn.data.augmentation import Augmentation
from arrn.data.batches import Batch, Batches, MemoryBatches, Order, StreamedBatches, measure_statistics, open_batches
from arrn.data.catalog import Dataset, data_root, list_datasets, open_dataset, set_or_path
from arrn.data.chunks import ChunkedSource
from arrn.data.decoding import PICTURES, Codec, decode, header_size
from arrn.data.examining import Examined, examine, hold_out, skipped_in_words, suggesting_skip_bad
from arrn.data.folder import ClassFolders, ImageFolder
from arrn.data.framing import Framed, aspect_in_words, frame
from arrn.data.npz import NpzArrays
from arrn.data.parquet import ParquetFiles
from arrn.data.placement import Bucket, Placement, fits_in_memory, load_buckets, stored_bytes
from arrn.data.published import CifarBatches, Stl10Binary
from arrn.data.shards import is_pattern
from arrn.data.sound import SoundCodec, clip_seconds, decode_wav
from arrn.data.source import IMAGE, SOUND, Form, Selection, Source, word_for
from arrn.data.storage import StoreAwayError, StoredFile, is_remote
from arrn.data.tars import TarFiles
from arrn.data.tinyimagenet import TinyImageNet
from arrn.data.trivial_augment import TrivialAugmentWide
from arrn.data.windows import Windows
from arrn.runtime.files import BadSample
from arrn.runtime.wav import WavHeader, Window, wav_header
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
    "ChunkedSource",
    "ClassFolders",
    "Codec",
    "Dataset",
    "Examined",
    "Form",
    "Framed",
    "ImageFolder",
    "MemoryBatches",
    "Normalisation",
    "NpzArrays",
    "Order",
    "ParquetFiles",
    "Placement",
    "Selection",
    "SoundCodec",
    "Source",
    "Stl10Binary",
    "StoreAwayError",
    "StoredFile",
    "StreamedBatches",
    "TarFiles",
    "TinyImageNet",
    "TrivialAugmentWide",
    "WavHeader",
    "Window",
    "Windows",
    "aspect_in_words",
    "clip_seconds",
    "data_root",
    "decode",
    "decode_wav",
    "examine",
    "fits_in_memory",
    "frame",
    "full_scale",
    "header_size",
    "hold_out",
    "is_pattern",
    "is_remote",
    "list_datasets",
    "load_buckets",
    "measure_statistics",
    "open_batches",
    "open_dataset",
    "set_or_path",
    "skipped_in_words",
    "stored_bytes",
    "suggesting_skip_bad",
    "wav_header",
    "word_for",
]
