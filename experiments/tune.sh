#!/bin/sh
# Every study behind the tables: sh experiments/tune.sh coat|yahoo_r3 FOLDER [OPTIONS of tune]
# A study that is finished, or stopped, goes on from its journal in FOLDER. With several workers the
# trials come in another order, and so the later ones are others. STUDIES="mf umf" makes some alone.
set -eu
data=${1:?give coat or yahoo_r3} folder=${2:?give a folder for the studies}
shift 2
case $data in
coat) splits=10 cjmf=cjmf wmf="--splits 10" expomf="--splits 10" ;;
yahoo_r3) splits=1 cjmf="" wmf="--set epochs=15" expomf="--set epochs=25" ;;  # CJMF is too slow
*)
    echo "error: no studies of $data; known: coat and yahoo_r3" >&2
    exit 2
    ;;
esac
run="${UNEXPOSED:-unexposed} tune --dataset $data --trials 40 --out $folder"
long="--splits $splits --set epochs=200 --set biases=false"  # the studies are older than biases
umf="--start-from $folder/${data}_umf.json"  # UBO with a shut gate is UMF
frozen="--start-from $folder/${data}_ubo-strategy-frozen.json"

for study in ${STUDIES:-mf bpr relmf umf frozen ubo wmf expomf $cjmf}; do
    case $study in
    mf | bpr | relmf | umf) $run --methods "$study" $long "$@" ;;
    ubo) $run --methods ubo $long $frozen "$@" ;;
    frozen)
        $run --methods ubo:strategy=frozen $long --set gate_pace=0 \
            --set exposure_learning_rate=1e-4 $umf "$@"
        ;;
    wmf) $run --methods wmf $wmf "$@" ;;
    expomf) $run --methods expomf $expomf "$@" ;;
    cjmf) $run --methods cjmf --splits 1 --set epochs=60 "$@" ;;
    *)
        echo "error: no study $study" >&2
        exit 2
        ;;
    esac
done
