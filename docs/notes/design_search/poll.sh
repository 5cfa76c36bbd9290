# poll.sh SECONDS: waits, then prints the table and the end of what runs, and brings the results
sleep $1
[ -f /tmp/q/results.jsonl ] && python3 /tmp/queue_table.py /tmp/q/results.jsonl && cp /tmp/q/results.jsonl $OUT/
for d in /tmp/q/runs/*; do n=$(basename $d); grep -q "\"$n\"" /tmp/q/results.jsonl 2>/dev/null || { echo "running $n: $(tail -n 1 $d/log.jsonl 2>/dev/null | cut -c1-170)"; }; done
nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader; cat /tmp/q/daemon.log | tail -n 5; [ -f /tmp/tests.log ] && tail -n 4 /tmp/tests.log
true
