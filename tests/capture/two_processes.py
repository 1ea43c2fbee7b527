"""What each of two torchrun processes runs in `test_two_processes.py`."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from foretrace.capture import record


def main(folder: str) -> None:
    """Record 2 steps of a known sequence of collectives in two groups, then rank 1 alone."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = dist.new_group([0, 1], group_desc="pair")
    weight = torch.ones(64, 64, requires_grad=True)
    with record(folder, steps=2, warmup=1, unprofiled=3) as recorder:
        while not recorder.is_done:
            (torch.ones(8, 64) @ weight).sum().backward()  # type: ignore[no-untyped-call]
            first = dist.all_reduce(torch.ones(100), group=pair, async_op=True)
            second = dist.all_reduce(torch.ones(200), async_op=True)
            first.wait()
            second.wait()
            gathered = torch.empty(60)
            dist.all_gather_into_tensor(gathered, torch.ones(30), group=pair)
            dist.broadcast(torch.ones(7), src=0)
            if rank == 0:
                dist.send(torch.ones(5), 1)
            else:
                dist.recv(torch.ones(5), 0)
            dist.barrier()
            recorder.step()
    with record(f"{folder}-of-1", steps=1, warmup=0, unprofiled=0, ranks=[1]) as recorder:
        while not recorder.is_done:
            dist.barrier()
            recorder.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
