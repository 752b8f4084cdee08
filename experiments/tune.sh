#!/bin/sh
# Every study behind the tables: sh experiments/tune.sh coat|yahoo_r3 FOLDER [--data-dir D] [--workers N]
# A study that is finished, or stopped, goes on from its journal in FOLDER. With several workers the
# trials come in another order, and so the later ones are others.
set -eu
data=$1 folder=$2
shift 2
run="${UNEXPOSED:-unexposed} tune --dataset $data --trials 40 --out $folder"

case $data in
coat) splits=10 wmf="--splits 10" expomf="--splits 10" drawn="" ;;
yahoo_r3) splits=2 wmf="--set epochs=15" expomf="--set epochs=25" drawn="--set validation_batch=4096" ;;
*)
    echo "error: no studies of $data; known: coat, yahoo_r3" >&2
    exit 2
    ;;
esac

for method in mf bpr relmf umf; do
    $run --methods $method --splits $splits --set epochs=300 "$@"
done

# UBO with a shut gate is UMF, and with an exposure that does not learn it is `frozen`
$run --methods ubo:strategy=frozen --splits $splits --set epochs=300 \
    --set gate_pace=0 --set exposure_learning_rate=1e-4 \
    --start-from "$folder/${data}_umf.json" "$@"
$run --methods ubo --splits $splits --set epochs=300 \
    --start-from "$folder/${data}_ubo-strategy-frozen.json" "$@"
$run --methods ubo:validation_negatives=drawn --splits $splits --set epochs=300 \
    --set gate_pace=0 --set validation_users=1 --set validation_items=0 $drawn \
    --start-from "$folder/${data}_ubo-strategy-frozen.json" "$@"

$run --methods wmf $wmf "$@"
$run --methods expomf $expomf "$@"
