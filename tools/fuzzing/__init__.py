"""The parts of `tools/fuzz.py`: how files are damaged, what is damaged and used, and what came of a case."""
