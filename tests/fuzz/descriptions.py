"""Descriptions that users write, and command lines with numbers: what is changed to be hostile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_PLAN = "--model llama3.2-1b --tp 2 --pp 2 --dp 2 --global-batch 8"
_STAGES = (
    "estimate --model llama3.2-1b --machine dgx-h100 --pp 2 --dp 4 --micro-batch 1 --global-batch 8"
)
_OPEN = (
    "--machine dgx-h100 --set micro_batch=1 --set sequence=256 --set sharding.level=zero1"
    " --set recompute=none --set schedule=1f1b --set sequence_parallel=true"
)
_ENGINE = """{"model": "llama3-8b", "tensor_parallel_size": 2, "max_num_seqs": 64, "block_size": 16,
"max_model_len": 4096, "gpu_memory_utilization": 0.9, "max_num_batched_tokens": 2048}
"""
_ARRIVALS = "poisson:rate=10,prompt=64,output=8,requests=20"


@dataclass(frozen=True)
class Described:
    """One file, and the lines that read it."""

    file: str
    text: str
    lines: tuple[str, ...]
    beside: Mapping[str, str] = field(default_factory=dict)  # other files, never changed


FILES: Mapping[str, Described] = {
    "chip": Described(
        "mine.toml",
        """kind = "chip"
extends = "h100-sxm"
title = "H100 limited to 550 W"

[sources]
measured = { title = "our own measurement, March", url = "https://wiki.example.com/h100" }

[figures]
power = { value = "550 W", source = "measured" }
memory = { value = "80 GiB", source = "measured" }
num_processors = { value = 132, source = "measured" }

[peak]
bf16 = { value = "865 TFLOP/s", source = "measured", note = "largest GEMM" }
fp16 = { value = "865 TFLOP/s", assumed = "as bf16" }
""",
        ("machine check {file}", "machine show {file}"),
    ),
    "machine": Described(
        "ours.toml",
        """kind = "machine"
title = "ours"
host = "dgx-h100"

[[tiers]]
name = "host"
kind = "scale-up"
ranks = 8

[[tiers]]
name = "row"
kind = "pod"
technology = "InfiniBand"
ranks = 512
latency = "3 us"

[[tiers]]
name = "hall"
kind = "building"
ranks = 4096
oversubscription = "2:1"
""",
        ("machine check {file}", "machine show {file}", f"estimate --machine {{file}} {_PLAN}"),
    ),
    "model": Described(
        "model.toml",
        """kind = "transformer"
title = "A small one with experts"

[sources]
memo = { title = "Design memo 12", url = "https://example.com/memo-12" }

[shape]
source = "memo"
layers = 4
hidden = 512
vocabulary = { value = 64000, assumed = "the tokenizer is not chosen yet" }
context = 2048

[attention]
source = "memo"
heads = 8
kv_heads = 2
head_size = 64

[feed_forward]
source = "memo"
gated = true
width = 1024

[experts]
source = "memo"
count = 8
active = 2
width = 512
shared = 1
every = 2
""",
        (
            "model show {file} --tokens 4096",
            "estimate --model {file} --machine dgx-h100 --tp 2 --dp 2 --global-batch 8",
        ),
    ),
    "config": Described(
        "config.json",
        """{"model_type": "qwen3_moe", "hidden_size": 512, "intermediate_size": 1024,
"max_position_embeddings": 4096, "num_attention_heads": 8, "num_hidden_layers": 4, "head_dim": 64,
"num_key_value_heads": 2, "vocab_size": 32000, "tie_word_embeddings": false, "num_experts": 8,
"num_experts_per_tok": 2, "moe_intermediate_size": 256, "decoder_sparse_step": 1,
"mlp_only_layers": [], "norm_topk_prob": true, "use_sliding_window": false, "attention_bias": false,
"hidden_act": "silu"}
""",
        (
            "model show {file}",
            "estimate --model {file} --machine dgx-h100 --tp 2 --dp 2 --global-batch 8",
        ),
    ),
    "deepseek config": Described(
        "config.json",
        """{"model_type": "deepseek_v3", "hidden_size": 512, "intermediate_size": 1024,
"max_position_embeddings": 4096, "num_attention_heads": 8, "num_hidden_layers": 4,
"vocab_size": 32000, "num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64,
"qk_nope_head_dim": 32,
"qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1,
"num_experts_per_tok": 2, "moe_intermediate_size": 256, "first_k_dense_replace": 1,
"moe_layer_freq": 1, "tie_word_embeddings": false, "num_nextn_predict_layers": 1,
"attention_bias": false, "hidden_act": "silu"}
""",
        ("model show {file}",),
    ),
    "plan": Described(
        "plan.toml",
        """extends = "megatron"

[parallelism]
tp = 2
pp = 2
dp = 2

[batch]
micro_batch = 1
global_batch = 8
sequence = 512

[pipeline]
schedule = "interleaved"
chunks = 2

[sharding]
level = "zero1"
""",
        ("estimate --model llama3.2-1b --machine dgx-h100 --plan {file}",),
    ),
    "schedule": Described(
        "schedule.toml",
        """kind = "schedule"
stages = [
    "F0 F1 I0 W0 I1 W1",
    "F0 I0 F1 I1 W0 W1",
]
stage_of_chunk = [0, 1]
""",
        (f"{_STAGES} --schedule {{file}}",),
    ),
    "schedule table": Described(
        "schedule.csv",
        "0F0,0F1,0B0,,0B1\n,1F0,1B0,1F1,1B1\n",
        (f"{_STAGES} --schedule {{file}}",),
    ),
    "scenarios": Described(
        "scenarios.toml",
        """[[scenario]]
name = "deeper"
layers = 2

[[scenario]]
name = "wider network"
set = { "network.pod.bandwidth" = "400Gb/s" }

[[scenario]]
name = "faster products, a slow rank"
speed = { gemm = 1.2 }
slow_rank = { 0 = 1.1 }
delay = { 0 = "2 ms" }
tp = 4
""",
        ("whatif {good} --scenarios {file}",),
    ),
    "blocks": Described(
        "blocks.toml",
        """layers_per_stage = [1]

[[rule]]
annotation = "my_block_*"
part = "layer"

[[rule]]
operator = "aten::linear"
part = "bucket"
phase = "forward"
""",
        ("inspect {good} --blocks --blocks-file {file}", "idle {good} --blocks-file {file}"),
    ),
    "campaign": Described(
        "campaign.toml",
        """kind = "campaign"
hosts = 64
failures = "llama3"
while_down = "again"

[checkpoint]
interval = "best"
blocking = "10s"
background = "2min"

[down]
detection = "1min"
queue = "0"
restart = "8min"

[fleet]
spares = 2
repair = "3d"
lemon_share = 0.012
lemon_factor = 30
excluded_after = 3

[preemption]
every = "7d"
away = "2h"
has_notice = true
""",
        (
            "risk campaign {file} --days 10 --samples 10",
            "risk ettr {file} --samples 10",
            "risk compare {file} --days 10 --samples 10",
        ),
    ),
    "failure log": Described(
        "log.csv",
        "time,host,component\n"
        + "".join(
            f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00:00+00:00,h{hour % 7},gpu\n"
            for hour in range(0, 400, 9)
        ),
        (
            "risk failures {file} --nodes 20 --days 30",
            "risk failures {file} --nodes 20 --out {out}/x.toml",
        ),
    ),
    "products": Described(
        "gemm-mine.parquet",
        "gpu,m,n,k,dtype,time_ns\n"
        + "".join(f"h100,{256 * at},1024,512,bf16,{9000 + 700 * at}\n" for at in range(1, 9)),
        ("validate cost --data {in}",),
    ),
    "attention": Described(
        "attention-mine.parquet",
        "gpu,batch,heads,kv_heads,head_dim,seq,dtype,causal,time_ns\n"
        + "".join(f"h100,{at},8,8,128,1024,bf16,true,{20000 * at}\n" for at in range(1, 9)),
        ("validate cost --data {in}",),
    ),
    "collectives": Described(
        "collectives-mine.parquet",
        "system,gpu,num_gpus,num_nodes,collective,message_bytes,dtype,time_ns\n"
        + "".join(
            f"dgx-h100,h100,8,1,all_reduce,{4096 << at},bf16,{20000 << at}\n" for at in range(8)
        ),
        ("validate cost --data {in}",),
    ),
    "engine": Described(
        "engine.json",
        _ENGINE,
        (
            f"serve --engine {{file}} --gpu h100 --requests {_ARRIVALS}",
            f"serve --engine {{file}} --gpu h100 --requests {_ARRIVALS} --rate 5 --slo ttft=2s",
        ),
    ),
    "requests": Described(
        "requests.csv",
        "arrival,prompt_len,output_len\n0,64,8\n0.1,128,4\n0.2,32,16\n",
        ("serve --engine {in}/engine.json --gpu h100 --requests {file}",),
        {"engine.json": _ENGINE},
    ),
    "documents": Described(
        "lengths.csv",
        "tokens\n" + "".join(f"{64 + 97 * at % 3000}\n" for at in range(200)),
        ("balance --documents {file} --window 4096 --microbatches 2 --tp 2 --steps 16",),
    ),
    "runs": Described(
        "runs.csv",
        "id,source,software,model,layers,hidden,heads,ffn,vocab,gpu,num_gpus,tp,pp,dp,micro_batch,"
        "global_batch,seq_len,precision,step_time_s\n"
        "a,mine,megatron,llama3,4,512,8,2048,32000,H100,8,2,2,2,1,8,512,bf16,0.1\n"
        "b,mine,megatron,llama3,8,1024,16,4096,32000,H100,16,2,2,4,1,16,512,bf16,0.2\n",
        ("validate runs --data {file} --workers 1",),
    ),
}

# Of these any word but the first may become a hostile one.
COMMANDS = tuple(
    " ".join(line.split())
    for line in f"""
estimate --machine dgx-h100 {_PLAN}
estimate --machine dgx-h100 {_PLAN} --sequence 512 --micro-batch 1 --schedule interleaved \
    --chunks 2 --price 2.5
estimate --machine dgx-h100 --model mixtral-8x7b --tp 2 --ep 4 --dp 4 --global-batch 16
estimate --machine dgx-h100 {_PLAN} --set sequence=512 --set recompute=none --json
estimate --machine dgx-h100 {_PLAN} --report {{out}}/x.html --trace {{out}}/x.json.gz
estimate --machine dgx-h100 --model dlrm-mlperf-v2 --gpus 8 --global-batch 65536
estimate --machine dgx-h100 --model stable-diffusion-1.5 --gpus 8 --global-batch 64
estimate --machine dgx-h100 --model llama3.2-1b --tp 2 --cp 2 --dp 2 --global-batch 4 \
    --sharding zero3 --recompute full
model show llama3-8b --tokens 4096
risk campaign --nodes 100 --failure-rate 0.01 --checkpoint-interval 60min --restart 10min \
    --days 20 --samples 10
risk campaign llama3-405b --days 5 --samples 5 --tokens 1e12 --tokens-per-second 1e7 --price \
    2
risk campaign --nodes 50 --failure-rate 0.01 --checkpoint-interval 60min --restart 5min \
    --spares 2 --repair 3d --lemons 0.02 --lemon-factor 10 --exclude-after 3 --samples 5 --days \
    5 --preempt-every 3d --preempt-away 2h
risk compare --nodes 64 --failure-rate 0.01 --checkpoint-interval 60min --restart 10min \
    --days 10 --samples 10 --replicas 4 --stall 1min --away 9min
risk ettr --nodes 100 --failure-rate 0.01 --checkpoint-interval 60min --restart 10min \
    --samples 10 --target 0.9 --checkpoint-time 10s
risk failures rsc-1 --nodes 100
risk placement {_PLAN} {_OPEN} --samples 8 --slowdown 1.2 --host 0
risk steps {_PLAN} {_OPEN} --samples 16 --vary kernel=0.05 --budget 1
risk steps {_PLAN} {_OPEN} --samples 16 --training-steps 1000 --top 3
whatif {{good}} --layers 3 --hidden 512 --ffn 1024 --heads 8 --kv-heads 4 --head-width 64
whatif {{good}} --tp 2 --pp 2 --dp 2 --cp 1 --ep 1 --chunks 1
whatif {{good}} --sequence 512 --micro-batch 2 --global-batch 4
whatif {{good}} --takes gemm=1ms --speed gemm=1.2 --transfers all=0.5 --transfer-delay 3us
whatif {{good}} --slow-rank 0=1.2 --delay 0=2ms --fuse all=1.2 --cuda-graphs all
whatif {{good}} --data-loading 1ms --cores 2 --processes 2
whatif {{good}} --data-loading hidden=2 --speed part:optimizer=2 --order step
whatif {{good}} --machine dgx-a100 --model llama3-8b --set network.host.bandwidth=400Gb/s
whatif --model llama3.2-1b --plan megatron --machine dgx-h100 --tp 2 --global-batch 8 \
    --speed gemm=1.2
sensitivity {{good}} --change gemm=0.5 --top 3
compare {{good}} {{good}} --fail-if-slower 3% --confidence 90 --top 3
idle {{good}} --step 4 --top 3 --json
critical-path {{good}} --rank 0 --step 4 --top 2
breakdown {{good}} --json --csv {{out}}/x.csv
replay {{good}} --json --csv {{out}}/x.csv --parquet {{out}}/x.parquet --ranks 0
synthesise {{good}} -o {{out}}/x --nodes 50 --ranks 2 --seed 1 --order 3
draw {{good}} -o {{out}}/x.svg --around gemm --depth 2 --rank 0 --step 4
anonymise {{good}} -o {{out}}/x --scale-shapes 2
operators {{good}} --by family --top 3 --workers 1
report {{good}} -o {{out}}/x.html --title mine --step 4
inspect {{good}} --json --table events
machine show dgx-h100
measure --seconds 0.1 --only gemm --device none
search --model llama3.2-1b --machine dgx-h100 --gpus 8 --tp 2 --global-batch 8 --sequence 512 \
    --time 1 --gap 5% --workers 1
search --model llama3.2-1b --machine dgx-h100 --gpus 4,8 --global-batch 8 --time 1 --price 2 \
    --objective cost --where tp<=4
plan --model llama3.2-1b --gpus 8 --tp 2 --global-batch 8 --sequence 512 --as megatron
balance --documents lognormal:7,1 --window 4096 --microbatches 2 --tp 2 --steps 16 --seed 1
throughput {{good}} --step 4 --json
trend {{good}} {{good}} --top 3
stalls {{good}} --step 4 --rank 0
analyze {{good}} --json
""".strip().splitlines()
)
