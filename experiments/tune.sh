#!/bin/sh
# Every study behind the tables: sh experiments/tune.sh coat|yahoo_r3 100|300 FOLDER [OPTIONS of tune]
# A study that is finished, or stopped, goes on from its journal in FOLDER. With several workers the
# trials come in another order, and so the later ones are others.
set -eu
data=${1:?give coat or yahoo_r3} epochs=${2:?give 100 or 300} folder=${3:?give a folder for the studies}
shift 3
run="${UNEXPOSED:-unexposed} tune --dataset $data --trials 40 --out $folder"
umf="--start-from $folder/${data}_umf.json"  # UBO with a shut gate is UMF
frozen="--start-from $folder/${data}_ubo-strategy-frozen.json"

case $data:$epochs in
coat:100) splits=10 drawn="" umf="" frozen="" ;;
coat:300) splits=10 drawn="" ;;
yahoo_r3:100) splits=2 drawn="--set validation_batch=4096" frozen=$umf ;;
yahoo_r3:300) splits=2 drawn="--set validation_batch=4096" ;;
*)
    echo "error: no studies of $data with $epochs epochs; known: coat and yahoo_r3, 100 and 300" >&2
    exit 2
    ;;
esac

for method in mf bpr relmf umf; do
    $run --methods $method --splits $splits --set epochs=$epochs "$@"
done
$run --methods ubo:strategy=frozen --splits $splits --set epochs=$epochs \
    --set gate_pace=0 --set exposure_learning_rate=1e-4 $umf "$@"
$run --methods ubo --splits $splits --set epochs=$epochs $frozen "$@"
$run --methods ubo:validation_negatives=drawn --splits $splits --set epochs=$epochs \
    --set gate_pace=0 --set validation_users=1 --set validation_items=0 $drawn $frozen "$@"

case $data:$epochs in
coat:100)
    $run --methods wmf --splits 10 "$@"
    $run --methods expomf --splits 10 "$@"
    $run --methods cjmf --splits 3 --set epochs=100 "$@"
    ;;
yahoo_r3:100)
    $run --methods wmf --set epochs=15 "$@"
    $run --methods expomf --set epochs=25 "$@"
    $run --methods cjmf --set epochs=40 "$@"
    ;;
esac
