# start.sh WORKERS: copies the source, starts MPS where there is one, and the queue as a daemon
mkdir -p /tmp/q /tmp/src && cp -r src/. /tmp/src/
if command -v nvidia-cuda-mps-control >/dev/null && [ -z "$NOMPS" ]; then export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mpslog; mkdir -p /tmp/mps /tmp/mpslog; setsid nvidia-cuda-mps-control -d; echo mps on; fi
export PYTHONPATH=/tmp/src DATA=/tmp/data OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
cp carry/gpu/queue_runner.py carry/gpu/queue_table.py /tmp/
setsid nohup python3 /tmp/queue_runner.py /tmp/q $1 > /tmp/q/daemon.log 2>&1 < /dev/null &
sleep 1
