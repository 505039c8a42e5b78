#!/bin/bash
# Judge on the GPUs of several machines. The job runs a Ray cluster with one worker per GPU. From the checkout's root,
# with its environment active:
#   sbatch serve/slurm_ray.sh pairs.jsonl -o judgments.jsonl --model my-judge --config configs/judge/vllm.yaml
# Arguments after the script name are passed to judgelm-batch. All machines must have access to the model and the
# environment. Add your partition and account. Two minutes before its time limit, the job is asked to stop. To resume,
# submit it again with the same command.
#SBATCH --job-name=judgelm-batch
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --output=%x-%j.log
set -euo pipefail

machines=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first="${machines%%$'\n'*}"
export RAY_USAGE_STATS_ENABLED=0 HEAD_ADDRESS="$first:$((20000 + SLURM_JOB_ID % 10000))"
# A secret for this job prevents others on the network from using its cluster (Ray 2.52 and later).
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN

# Without --cpus-per-task, a step gets one core per machine, because srun ignores the job's setting (Slurm 22.05 and
# later). SLURM_NODEID is known only inside srun. Nodes that start before the head wait for it.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=0 bash -c '
    cores=(--num-cpus "$SLURM_CPUS_PER_TASK")
    if [ "$SLURM_NODEID" -eq 0 ]; then
        exec ray start --head --port "${HEAD_ADDRESS##*:}" "${cores[@]}" --include-dashboard false --block
    fi
    until ray health-check --address "$HEAD_ADDRESS" > /dev/null 2>&1; do sleep 2; done
    exec ray start --address "$HEAD_ADDRESS" "${cores[@]}" --block
' &
cluster=$!
trap 'kill "$cluster" 2> /dev/null || true' EXIT

nodes=0
until [ "$nodes" -ge "${SLURM_JOB_NUM_NODES:-1}" ]; do  # so that all GPUs are counted
    kill -0 "$cluster"
    sleep 2
    nodes=$(python -c 'import ray, sys; ray.init(sys.argv[1], logging_level="ERROR"); print(len(ray.nodes()))' \
        "$HEAD_ADDRESS" 2> /dev/null) || nodes=0
done

judgelm-batch "$@" --ray "$HEAD_ADDRESS" &
run=$!
trap 'kill -TERM "$run"' TERM
until wait "$run" || ! kill -0 "$run" 2> /dev/null; do :; done  # a signal ends the wait, not the run
wait "$run"
