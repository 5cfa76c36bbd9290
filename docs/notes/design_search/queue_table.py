import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    rows = {}
    def walk(x):
        if isinstance(x, dict):
            if "resolution" in x and "accuracy" in x: rows.setdefault(x["resolution"], []).append(x["accuracy"])
            for v in x.values(): walk(v)
        if isinstance(x, list):
            for v in x: walk(v)
    walk(r["evaluation"])
    last = (r["last"] or [{}])[0]
    acc = {k: max(v) * 100 for k, v in rows.items()}
    print(f"{r['name']:34s} rc{r['rc']} {r['train_s']:6.0f}s", " ".join(f"{acc[k]:5.1f}" for k in sorted(acc, reverse=True)), f"mean {sum(acc.values())/max(1,len(acc)):.2f}", "loss", round(last.get("loss", 0), 3), "acc", round(last.get("accuracy", 0), 3))
