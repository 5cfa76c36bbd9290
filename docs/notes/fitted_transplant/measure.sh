# measure.sh DATA OUT DEVICE EPOCHS: trains a small-stem ResNet18 (EPOCHS epochs of the paper's recipe), transplants it
# in both forms, and evaluates it on the test split before any training and after five epochs of training.
# DATA is a folder of parquet files. MODEL_OPTIONS="--option width=8" makes a rehearsal short.
set -e
data=$1 out=$2 device=$3 epochs=$4 python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd); export PYTHONPATH=$here:$PYTHONPATH
images=$(ls "$data"/train*.parquet | head -n 1)
train() { $python -m arrn train "$data" --device "$device" --seed 0 --recipe paper_cifar "$@"; }
evaluate() {
  $python -m arrn evaluate "$out/$1" --dataset "$data" --device "$device" --policy exact --adapt \
    --resolutions 32,24,16,12,8,6,4 --import fitted_networks --json "$out/$1.json"
}
[ -e "$out/source/model.safetensors" ] ||
  train --model resnet18_small_stem --option size=32 $MODEL_OPTIONS --epochs "$epochs" --out "$out/source"
evaluate source
for form in difference paper; do
  $python "$here/fitted_networks.py" "$out/source" "$images" $form "$out/$form-before"
  evaluate "$form-before"
  train --import fitted_networks --model fitted_networks:build --option run="$out/source" --option images="$images" \
    --option form=$form --epochs 5 --learning-rate 3e-4 --out "$out/$form-after"
  evaluate "$form-after"
done
