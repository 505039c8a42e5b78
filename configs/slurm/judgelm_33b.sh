#!/bin/bash
# JudgeLM-33B on two machines with 8 GPUs each, from the checkout's root with its environment active:
#   sbatch configs/slurm/judgelm_33b.sh --config configs/train/judgelm_33b.yaml
# Arguments are passed to train/sft.py; the default is the config above. One launcher per machine starts its 8
# processes. Add your partition and account. Slurm signals the job 15 minutes before its time limit, so that it saves a
# checkpoint and stops. The same command resumes it.
#SBATCH --job-name=judgelm-33b
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=48:00:00
#SBATCH --signal=USR1@900
#SBATCH --output=%x-%j.log
set -euo pipefail

if [ "$#" -eq 0 ]; then
    set -- --config configs/train/judgelm_33b.yaml
fi
machines=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export FIRST_MACHINE="${machines%%$'\n'*}" FIRST_PORT=$((20000 + SLURM_JOB_ID % 10000))
export TOKENIZERS_PARALLELISM=false

# SLURM_NODEID is set only inside srun, so the inner shell reads it; its "$@" are the arguments after `launch`.
# srun does not inherit --cpus-per-task from the job (Slurm 22.05 and later); without it a step gets one core.
# USR1 must reach the training processes: the launcher ignores it (it would die), and the shell forwards it.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 bash -c '(trap "" USR1; exec accelerate launch \
    --config_file configs/accelerate/zero3_2nodes.yaml \
    --machine_rank "$SLURM_NODEID" --main_process_ip "$FIRST_MACHINE" --main_process_port "$FIRST_PORT" \
    train/sft.py "$@") &
launcher=$!
trap "pkill -USR1 -P $launcher" USR1
until wait "$launcher" || ! kill -0 "$launcher" 2> /dev/null; do :; done  # a signal ends the wait, not the launcher
wait "$launcher"' launch "$@"
