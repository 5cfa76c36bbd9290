"""The HTTP application over a real connection: answers, refusals and their sentences, tokens, documents, counts."""

import io
import json
import re
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import arrn
from arrn.runtime.pictures import FORMATS
from arrn.runtime.serving.server_settings import ServerSettings, find_token, parse_bytes, parse_seconds
from pictures import encoded
from servers import CLASSES, Brightness, Running, grey, png, serving
from sounds import tone, wav_bytes

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def network() -> Brightness:
    return Brightness()


@pytest.fixture(scope="module")
def running(network: Brightness) -> Iterator[Running]:
    with serving(network, max_body=200_000, max_files=5, max_waiting=40, max_pixels=300_000, delay=0.002) as server:
        yield server


def refusal(response: object, status: int, words: str) -> dict[str, object]:
    """Checks that a response is a problem with a sentence, and returns its JSON."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    document = response.json()
    assert document["status"] == status
    assert document["title"]
    assert re.search(words, document["detail"]), document["detail"]
    assert re.fullmatch(r"[^a-z].*\.", document["detail"], re.DOTALL), document["detail"]
    return document


@pytest.mark.parametrize(("height", "width", "level"), [(4, 4, 2), (8, 3, 2), (9, 8, 1), (20, 33, 0), (300, 200, 0)])
def test_a_picture_of_any_size_gets_the_answer_of_its_level(
    running: Running, network: Brightness, height: int, width: int, level: int
) -> None:
    content = png(height, width)
    answer = running.send(content).json()
    right = network.probabilities(level, network.read(content).samples)
    order = sorted(range(3), key=lambda n: -right[n])
    assert answer["label"] == order[0]
    assert answer["name"] == CLASSES[order[0]]
    assert answer["probability"] == pytest.approx(max(right))
    assert [(each["label"], each["name"]) for each in answer["top"]] == [(n, CLASSES[n]) for n in order]
    assert [each["probability"] for each in answer["top"]] == pytest.approx([right[n] for n in order])
    assert answer["size"] == [height, width]
    assert answer["level"] == level
    assert answer["grid"] == list(network.grids[level])
    assert answer["batch"] == 1
    assert set(answer["milliseconds"]) == {"decoded", "queued", "computed"}
    assert all(value >= 0 for value in answer["milliseconds"].values())


def test_top_is_the_number_of_classes_that_are_told(running: Running) -> None:
    assert len(running.send(grey(1), path="/predict?top=1").json()["top"]) == 1
    assert len(running.send(grey(1), path="/predict?top=1000").json()["top"]) == 3
    for wrong in ("0", "-1", "1001", "abc", "1e3"):
        refusal(
            running.send(grey(1), path=f"/predict?top={wrong}"), 422, f"The parameter top is '{wrong}': Input should be"
        )


def test_files_of_a_form_are_answered_in_their_order_together_by_level(running: Running) -> None:
    response = running.send_form(grey(10), grey(250), png(32, 32), grey(20), grey(240))
    results = response.json()["results"]
    assert [result["file"] for result in results] == [f"{n}.png" for n in range(5)]
    assert [result["answer"]["label"] for result in results if result["file"] != "2.png"] == [0, 1, 0, 1]
    assert [result["answer"]["level"] for result in results] == [2, 2, 0, 2, 2]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(running: Running) -> None:
    broken = png(40, 40)[:200]
    response = running.send_form(grey(10), broken, b"", grey(13), grey(250))
    assert response.status_code == 200
    first, cut, empty, poison, last = response.json()["results"]
    assert first["answer"]["label"] == 0
    assert last["answer"]["label"] == 1
    assert cut["problem"]["status"] == 422
    assert re.search(r"'1.png': cannot be decoded", cut["problem"]["detail"])
    assert re.search(r"'2.png': it is empty", empty["problem"]["detail"])
    assert poison["problem"]["status"] == 500
    assert "the network failed on this input" in poison["problem"]["detail"].lower()


def test_a_form_without_a_good_file_has_the_status_of_its_first_problem(running: Running) -> None:
    document = refusal(running.send_form(b"nothing", grey(13)), 422, "All 2 files have problems, the first: '0.png'")
    assert [result["problem"]["status"] for result in document["results"]] == [422, 500]
    refusal(running.send_form(b"nothing"), 422, "'0.png': not an image")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "The body is empty"),
        (b"hello", "The image: not an image of a known format"),
        (png(50, 50)[:-300], "cannot be decoded"),
        (encoded(np.zeros((600, 600, 3), np.uint8)), "360,000 pixels, more than the limit of 300,000"),
    ],
)
def test_files_that_cannot_be_answered_are_422(running: Running, content: bytes, words: str) -> None:
    refusal(running.send(content), 422, words)


def test_a_bomb_is_refused_by_its_header(running: Running) -> None:
    bomb = encoded(np.zeros((1, 1, 3), np.uint8))
    header = b"IHDR" + (8000).to_bytes(4, "big") * 2 + bomb[24:29]
    huge = bomb[:12] + header + zlib.crc32(header).to_bytes(4, "big") + bomb[33:]
    refusal(running.send(huge), 422, "64,000,000 pixels, more than the limit of 300,000")
    zeros = encoded(np.zeros((4000, 4000, 3), np.uint8), "PNG")
    assert len(zeros) < 100_000
    refusal(running.send(zeros), 422, "16,000,000 pixels")


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/x-www-form-urlencoded", ""])
def test_other_content_types_are_415(running: Running, kind: str) -> None:
    words = "is not taken: send one file" if kind else "The content type is missing"
    refusal(running.send(grey(1), kind), 415, words)


def test_a_compressed_body_is_415(running: Running) -> None:
    refusal(running.send(grey(1), **{"Content-Encoding": "gzip"}), 415, "'gzip' is not taken")
    assert running.send(grey(1), "application/octet-stream").status_code == 200
    assert running.send(grey(1), "IMAGE/PNG; charset=x").status_code == 200


def test_too_large_a_body_is_413_whether_it_says_so_or_not(running: Running) -> None:
    refusal(running.send(bytes(200_001)), 413, "200,001 bytes; the server takes 200,000")
    parts = (bytes(50_000) for _ in range(5))
    chunked = running.client.post("/predict", content=parts, headers={"Content-Type": "image/png"})
    refusal(chunked, 413, "more than 200,000 bytes")
    assert running.send(grey(1)).status_code == 200


def test_too_many_files_are_413_and_other_bad_forms_422(running: Running) -> None:
    refusal(running.send_form(*[grey(1)] * 6), 413, "more than 5 files")
    refusal(running.client.post("/predict", data={"a": "b"}, files={}), 415, "not taken")
    nothing = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'
    refusal(running.send(nothing, "multipart/form-data; boundary=x"), 422, "The form holds no file")
    refusal(running.send(b"--y\r\n", "multipart/form-data; boundary=x"), 422, "The form cannot be read")
    refusal(running.send(b"x", "multipart/form-data"), 422, "Missing boundary")
    many = b"".join(b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n' for _ in range(100))
    refusal(running.send(many + b"--x--\r\n", "multipart/form-data; boundary=x"), 422, "Too many fields")


def test_names_of_strangers_come_back_as_json(running: Running) -> None:
    files = [("file", ("\x1b]0;owned\x07é\n.png", b"none", "image/png")), ("file", ("a", grey(1), "image/png"))]
    text = running.client.post("/predict", files=files).content
    assert b"\x1b" not in text
    assert b"\n" not in text
    assert json.loads(text)["results"][1]["answer"]["label"] == 0


def test_an_input_on_which_the_network_fails_is_500_and_the_server_goes_on(running: Running) -> None:
    for _ in range(3):
        refusal(running.send(grey(13)), 500, "The network failed on this input .ZeroDivisionError.")
    refusal(running.client.get("/healthz"), 503, "The network failed on its last three batches")
    assert running.send(grey(14)).status_code == 200
    assert running.client.get("/healthz").json() == {"status": "ok"}


def test_unknown_paths_and_methods_are_told(running: Running) -> None:
    refusal(running.client.get("/nothing"), 404, "There is nothing at '/nothing'")
    refusal(running.client.get("/predict"), 405, "GET is not possible at /predict")


def test_the_network_is_described(running: Running) -> None:
    told = running.client.get("/network").json()
    assert told["kind"] == "image"
    assert told["grids"] == [[32, 32], [16, 16], [8, 8]]
    assert told["class_names"] == list(CLASSES)
    assert told["limits"]["max_pixels"] == 300_000


def test_the_pages_are_whole_in_themselves(running: Running) -> None:
    front = running.client.get("/").text
    assert "curl -H &#x27;Content-Type: image/png&#x27; --data-binary @cat.png" in front
    assert "200,000 bytes" in front
    docs = running.client.get("/docs").text
    for path in running.client.get("/openapi.json").json()["paths"]:
        assert path in docs
    assert "PredictedInput or FormResults" in docs
    for page in (front, docs):
        assert not re.search(r"https?://(?!ADDRESS)|<script|<link", page)
    policy = running.client.get("/docs").headers["content-security-policy"]
    assert "default-src 'none'" in policy


def test_the_openapi_document_describes_what_is_answered(running: Running) -> None:
    document = running.client.get("/openapi.json").json()
    predict = document["paths"]["/predict"]["post"]
    taken = set(predict["requestBody"]["content"])
    assert {"application/octet-stream", "multipart/form-data"} < taken
    images = taken - {"application/octet-stream", "multipart/form-data"}
    assert images == {"image/x-portable-pixmap" if name == "PPM" else f"image/{name.lower()}" for name in FORMATS}
    for kind in images:
        assert running.send(grey(1), kind).status_code == 200
    assert {"200", "401", "408", "413", "415", "422", "429", "500", "503"} <= set(predict["responses"])
    assert PROBLEM in predict["responses"]["413"]["content"]
    members = document["components"]["schemas"]["PredictedInput"]["properties"]
    assert set(running.send(grey(1)).json()) == set(members)


def test_the_counts_are_those_of_what_was_sent() -> None:
    with serving(Brightness(), delay=0.0, max_files=3) as running:
        running.send(grey(1))
        running.send_form(grey(1), b"none", grey(13))
        running.send(bytes(3), "text/plain")
        running.client.get("/nothing")
        text = running.client.get("/metrics").text
    for line in (
        'arrn_requests_total{path="/predict",status="200"} 2.0',
        'arrn_requests_total{path="/predict",status="415"} 1.0',
        'arrn_requests_total{path="other",status="404"} 1.0',
        'arrn_inputs_total{outcome="answered"} 2.0',
        'arrn_inputs_total{outcome="refused"} 1.0',
        'arrn_inputs_total{outcome="failed"} 1.0',
        'arrn_queue_seconds_count{level="8x8"} 2.0',
        'arrn_queue_seconds_count{level="32x32"} 0.0',
        "arrn_held_inputs 0.0",
        "arrn_held_bytes 0.0",
        "process_resident_memory_bytes",
    ):
        assert line in text, text


def test_a_token_guards_all_that_tells_of_the_network() -> None:
    token = "correct-horse-battery"
    with serving(Brightness(), token=token) as running:
        right = {"Authorization": f"Bearer {token}"}
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": token}, {"Authorization": "Bearer é"}):
            for path in ("/metrics", "/network", "/nothing"):
                headers = {name: value.encode("latin-1") for name, value in wrong.items()}
                refusal(running.client.get(path, headers=headers), 401, "needs the server's token")
            response = running.client.post("/predict", content=grey(1), headers={"Content-Type": "image/png"} | headers)
            refusal(response, 401, "needs the server's token")
            assert response.headers["www-authenticate"] == "Bearer"
        assert running.send(grey(1), **right).status_code == 200
        assert running.client.get("/metrics", headers=right).status_code == 200
        for path in ("/", "/docs", "/openapi.json", "/healthz"):
            response = running.client.get(path)
            assert response.status_code == 200
            assert token not in response.text
            assert "bright" not in response.text


def test_sounds_and_volumes_are_answered_likewise() -> None:
    with serving(Brightness(ndim=1, channels=1, classes=None)) as running:
        answer = running.send(wav_bytes(tone(100, 5, seconds=0.14), 100), "audio/wav").json()
        assert answer["name"] is None
        assert answer["size"] == [100]  # a window of a second
        assert answer["level"] == 0
        refusal(running.send(grey(1)), 415, "audio/wav")
        refusal(running.send(grey(1), "audio/wav"), 422, "The sound: ")
    with serving(Brightness(ndim=3, channels=1)) as running:
        volume = np.full((8, 7, 6), 250, np.uint8)
        file = io.BytesIO()
        np.save(file, volume)
        answer = running.send(file.getvalue(), "application/x-npy").json()
        assert (answer["name"], answer["size"], answer["level"]) == ("bright", [8, 7, 6], 2)
        file = io.BytesIO()
        np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        refusal(running.send(file.getvalue(), "application/octet-stream"), 422, "pickle")


def test_class_names_that_no_encoding_takes_are_written_as_escapes() -> None:
    with serving(Brightness(classes=("a\ud800", "\x1b[2J", "c"))) as running:
        names = [each["name"] for each in running.send(grey(1)).json()["top"]]
        assert set(names) == {"a\\ud800", "c", "\x1b[2J"}
        assert running.client.get("/network").status_code == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "0.0.0.0"}, "--host 0.0.0.0 lets other machines connect, and needs a token"),
        ({"host": "example.org"}, "needs a token"),
        ({"token": "short"}, "16 to 4,096 characters, got 5"),
        ({"token": "with white space in it"}, "without white space"),
        ({"batch": 0}, "batch must be a whole number from 1"),
        ({"port": 70_000}, "port must be a whole number from 0 to 65,535, got 70000"),
        ({"delay": -1}, "delay must be 0 to 3600 seconds, got -1"),
        ({"delay": float("nan")}, "delay must be"),
        ({"max_files": 300}, "max_files, 300, is more than max_waiting, 256"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(arrn.ArrnError, match=words):
        ServerSettings(**options)


def test_tokens_come_from_a_file_or_the_environment(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("correct-horse-battery\n")
    assert find_token(file, {"ARRN_TOKEN": "another-horse-battery"}) == "correct-horse-battery"
    assert find_token(None, {"ARRN_TOKEN": "another-horse-battery"}) == "another-horse-battery"
    assert find_token(None, {}) is None
    for content in ("short", "é" * 30, "x" * 5000):
        file.write_text(content)
        with pytest.raises(arrn.ArrnError, match="token") as told:
            find_token(file)
        assert content not in str(told.value)
    with pytest.raises(arrn.ArrnError, match="No such file"):
        find_token(tmp_path / "none")
    with pytest.raises(arrn.ArrnError, match="ARRN_TOKEN must have 16"):
        find_token(None, {"ARRN_TOKEN": ""})


@pytest.mark.parametrize("text", ["", "5", "five ms", "-1s", "1e9s", "5 parsecs", "1" * 400 + "s"])
def test_times_and_sizes_need_a_unit_that_is_known(text: str) -> None:
    if text == "5":
        assert parse_seconds("--delay", text) == parse_bytes("--max-body", text) == 5
        return
    with pytest.raises(arrn.ArrnError, match="--delay takes a time such as 5ms"):
        parse_seconds("--delay", text)
    with pytest.raises(arrn.ArrnError, match="--max-body takes a size such as"):
        parse_bytes("--max-body", text)
