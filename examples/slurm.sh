#!/bin/bash
#SBATCH --job-name=fedlama
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1      # torchrun starts the processes of a node
#SBATCH --cpus-per-task=16       # a process per core; with GPUs add --gpus-per-node: a process per GPU
#SBATCH --time=12:00:00
#SBATCH --requeue                # a job that is started again goes on from its checkpoint
#SBATCH --open-mode=append

set -euo pipefail
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first_host=${hosts%%$'\n'*}
processes=${SLURM_GPUS_ON_NODE:-$SLURM_CPUS_PER_TASK}
export OMP_NUM_THREADS=1

# --kill-on-bad-exit: where one host fails, torchrun on the others need not wait for it
srun --kill-on-bad-exit=1 \
    torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node "$processes" \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first_host:29500" \
    -m fedlama run config.toml --out runs/mine --resume
