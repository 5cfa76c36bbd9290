"""A predictor behind HTTP: files of any size in, answers out, inputs of one level batched together.

Its packages (fastapi, uvicorn, python-multipart, prometheus-client) come with the extra `serve`.
"""
