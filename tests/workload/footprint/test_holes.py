"""Memory that an allocator has reserved and cannot use: the block that logits leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.workload import PYTORCH, Implementation, Plan
from foretrace.workload.footprint.parts import head_bytes
from tests.models import transformer


@dataclass
class Pool:
    """A range that grows; the smallest free block that fits is taken, and nothing is moved.

    As PyTorch's allocator does for one stream with expandable segments.
    """

    end: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)  # begin, size
    used: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, name: str, size: int) -> None:
        """Place a tensor."""
        fitting = [block for block in self.free if block[1] >= size]
        if fitting:
            begin, room = min(fitting, key=lambda block: (block[1], block[0]))
            self.free.remove((begin, room))
            if room > size:
                self.free.append((begin + size, room - size))
        else:
            last = [block for block in self.free if sum(block) == self.end]
            begin = last[0][0] if last else self.end
            self.free = [block for block in self.free if block not in last]
            self.end = begin + size
        self.used[name] = (begin, size)

    def drop(self, *names: str) -> None:
        """Free tensors; neighbouring free blocks become one."""
        self.free = sorted(self.free + [self.used.pop(name) for name in names])
        merged: list[tuple[int, int]] = []
        for begin, size in self.free:
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((begin, size))
        self.free = merged


def reserved_by_a_plain_loss(numbers: int) -> int:
    """Bytes that the logits of one microbatch make an allocator reserve.

    In the order of `cross_entropy(logits.float(), labels).backward()`.
    """
    pool = Pool()
    pool.take("logits", 2 * numbers)
    pool.take("logits in fp32", 4 * numbers)
    pool.take("log-softmax", 4 * numbers)
    pool.drop("logits in fp32", "logits")
    pool.take("gradient of log-softmax", 4 * numbers)
    pool.take("gradient in fp32", 4 * numbers)
    pool.drop("gradient of log-softmax", "log-softmax")
    pool.take("gradient", 2 * numbers)
    return pool.end


def test_a_plain_loss_reserves_the_logits_beside_three_fp32_tensors() -> None:
    model = transformer("llama3-8b")
    plan = Plan(implementation=Implementation(fuses_loss=False), sequence=4096)
    logits = 4096 * model.vocabulary

    part = head_bytes(model, plan, PYTORCH)
    without = head_bytes(model, plan, replace(PYTORCH, counts_holes=False))

    kept = next(each.num_bytes for each in part.kept if each.label == "logits")
    assert kept + part.backward == reserved_by_a_plain_loss(logits) == 14 * logits
    assert part.backward - without.backward == 2 * logits
