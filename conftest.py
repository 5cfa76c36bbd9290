"""What pytest collects: the examples in docstrings, but not of Triton's kernels where there is no Triton."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["src/arrn/gpu/*_kernels.py"]
