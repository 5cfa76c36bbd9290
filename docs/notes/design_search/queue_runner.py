"""Runs trainings from a growing list, several at once, and evaluates each: queue.py ROOT WORKERS. One job a line:
name<TAB>arguments of arrn train. Results: ROOT/results.jsonl, logs: ROOT/logs/NAME.log; ROOT/stop ends it."""
import json, os, shlex, subprocess, sys, threading, time
root, workers = sys.argv[1], int(sys.argv[2])
data = os.environ["DATA"]; device = os.environ.get("DEVICE", "cuda")
res = os.environ.get("RES", "32,24,16,12,8,6,4")
os.makedirs(f"{root}/logs", exist_ok=True)
lock, taken = threading.Lock(), set()
def next_job():
    with lock:
        try: lines = open(f"{root}/queue.tsv").read().splitlines()
        except FileNotFoundError: lines = []
        for line in lines:
            name, _, args = line.partition("\t")
            if name and name not in taken:
                taken.add(name); return name, args
    return None
def one(name, args):
    out = f"{root}/runs/{name}"
    words = shlex.split(args)
    split = "validation" if "--holdout" in words else "test"
    began = time.time()
    with open(f"{root}/logs/{name}.log", "w") as log:
        a = [sys.executable, "-m", "arrn", "train", os.environ.get("DSET","cifar10"), *(["--data", data] if data else []), "--device", device, "--out", out, "--checkpoint-every", "1000", *words]
        rc = subprocess.run(a, stdout=log, stderr=subprocess.STDOUT).returncode
        trained = time.time() - began
        found = {}
        if rc == 0:
            rc = subprocess.run([sys.executable, "-m", "arrn", "evaluate", out, "--split", split, "--policy", "exact", "--device", device, *(["--data", data] if data else []),
                "--resolutions", res, "--json", f"{root}/eval/{name}.json"] + (["--adapt"] if split == "validation" else []), stdout=log, stderr=subprocess.STDOUT).returncode
            if rc == 0: found = json.load(open(f"{root}/eval/{name}.json"))
    entries = [json.loads(l) for l in open(f"{out}/log.jsonl")] if os.path.exists(f"{out}/log.jsonl") else []
    tail = [e for e in entries if "loss" in e][-1:] 
    with lock, open(f"{root}/results.jsonl", "a") as f:
        f.write(json.dumps({"name": name, "args": args, "rc": rc, "train_s": round(trained, 1), "s": round(time.time() - began, 1), "last": tail, "evaluation": found}) + "\n")
def work():
    while not os.path.exists(f"{root}/stop"):
        job = next_job()
        if job is None: time.sleep(0.3); continue
        one(*job)
os.makedirs(f"{root}/eval", exist_ok=True)
threads = [threading.Thread(target=work) for _ in range(workers)]
[t.start() for t in threads]; [t.join() for t in threads]
