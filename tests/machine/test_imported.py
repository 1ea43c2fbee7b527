"""Hosts and machines from files of other tools, and sentences for those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import MachineError
from foretrace.machine import Host, Machine, described, import_description

NCCL = """<system version="1">
  <cpu numaid="0" affinity="0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" rank="0" gdr="1">
        <nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
    <pci busid="0000:43:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1">
        <nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
    <pci busid="0000:1c:00.0" class="0x020700">
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic>
    </pci>
  </cpu>
</system>"""
TOPO = """\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPIX\tSYS\t0-47\t0
GPU1\tNV18\t X \tSYS\tPIX\t48-95\t1
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPIX\tSYS\t X

Legend:
  X    = Self
"""
ASTRA = """topology: [ FullyConnected, Switch ]
npus_count: [ 8, 4 ]
bandwidth: [ 50.0, 25.0 ]  # GB/s
latency: [ 500.0, 2000.0 ]  # ns
"""


FIRST_ASTRA = """{"topologies-per-dim": ["Ring"], "units-count": [4], "link-bandwidth": [50],
"link-latency": [1], "links-count": [0]}"""


def fat_tree(spine_gb_per_s: float = 100.0, *, hosts: int = 4) -> str:
    """Hosts of two ranks, two under a leaf, leaves under a spine."""
    rows = ["from,to,gb_per_s,latency_ns"]
    for rank in range(2 * hosts):
        rows.append(f"gpu{rank},nvswitch{rank // 2},450,300")
        rows.append(f"gpu{rank},nic{rank},50,0")
        rows.append(f"nic{rank},leaf{rank // 4},50,1000")
    rows += [f"leaf{leaf},spine0,{spine_gb_per_s},1500" for leaf in range(hosts // 2)]
    return "\n".join(rows) + "\n"


def imported(folder: Path, text: str, **names: str) -> Host | Machine:
    """The description that is made of a text, read again."""
    source, made = folder / "source.txt", folder / "made.toml"
    source.write_text(text, encoding="utf-8")
    made.write_text(import_description(source, **names).text, encoding="utf-8")
    found = described(made)
    assert isinstance(found, Host | Machine)
    return found


@pytest.mark.parametrize(("text", "cards"), [(NCCL, 1), (TOPO, 2)])
def test_a_host_has_the_chips_cards_and_links_that_its_tools_saw(
    tmp_path: Path, text: str, cards: int
) -> None:
    host = imported(tmp_path, text, chip="h100-sxm")

    assert isinstance(host, Host)
    assert (host.num_chips, host.num_nics, host.topology) == (2, cards, "switch")
    assert host.scale_up_bytes_per_ns == 450
    if text is NCCL:
        assert host.nic_bytes_per_ns == 50


BRIDGED = """<system version="1">
  <cpu numaid="0">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci class="0x030200"><gpu dev="0"/></pci>
      <pci class="0x030200"><gpu dev="1"/></pci>
      <pci class="0x020700"><nic><net name="mlx5_0" speed="200000"/></nic></pci>
    </pci>
  </cpu>
  <cpu numaid="1">
    <pci busid="0000:81:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci class="0x060400">
        <pci class="0x030200"><gpu dev="2"/></pci>
        <pci class="0x030200"><gpu dev="3"/></pci>
      </pci>
      <pci class="0x020700"><nic><net name="mlx5_1" speed="200000"/></nic></pci>
    </pci>
  </cpu>
</system>"""
BEHIND = """\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1
GPU0\t X \tPIX\tSYS\tSYS\tPXB\tSYS
GPU1\tPIX\t X \tSYS\tSYS\tPXB\tSYS
GPU2\tSYS\tSYS\t X \tPIX\tSYS\tPXB
GPU3\tSYS\tSYS\tPIX\t X \tSYS\tPXB
NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X
"""


@pytest.mark.parametrize("text", [BRIDGED, BEHIND])
def test_chips_and_cards_are_behind_pcie_switches(tmp_path: Path, text: str) -> None:
    host = imported(tmp_path, text, chip="rtx-4090")

    assert isinstance(host, Host)
    assert (host.num_chips, host.num_nics, host.num_pcie_switches) == (4, 2, 2)
    # 16 lanes of PCIe 4; else as a chip's own
    width = 16 * 16 / 8 * 128 / 130 if text is BRIDGED else host.chip.host_bytes_per_ns
    assert host.pcie_switch_bytes_per_ns == pytest.approx(width, rel=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        BRIDGED.replace('<pci class="0x030200"><gpu dev="3"/></pci>', ""),
        BEHIND.replace("GPU3\tSYS\tSYS\tPIX\t X \tSYS\tPXB", "GPU3\tSYS\tSYS\tSYS\t X \tSYS\tSYS")
        .replace("GPU2\tSYS\tSYS\t X \tPIX", "GPU2\tSYS\tSYS\t X \tSYS")
        .replace("NIC1\tSYS\tSYS\tPXB\tPXB", "NIC1\tSYS\tSYS\tPXB\tSYS"),
    ],
)  # fmt: skip
def test_switches_that_differ_are_not_stated(tmp_path: Path, text: str) -> None:
    host = imported(tmp_path, text, chip="rtx-4090")

    assert isinstance(host, Host)
    assert host.num_pcie_switches is None


def test_dimensions_of_astra_sim_are_tiers(tmp_path: Path) -> None:
    machine = imported(tmp_path, ASTRA, host="dgx-h100")

    assert isinstance(machine, Machine)
    gibibyte = 2**30 / 1e9
    assert [tier.num_ranks for tier in machine.tiers] == [8, 32]
    assert machine.tiers[0].bytes_per_ns == pytest.approx(7 * 50 * gibibyte, rel=1e-5)
    assert machine.tiers[1].bytes_per_ns == pytest.approx(25 * gibibyte, rel=1e-5)
    assert machine.tiers[1].latency_ns == 2000


@pytest.mark.parametrize(("spine", "oversubscription"), [(200.0, 1.0), (100.0, 2.0)])
def test_a_table_of_links_is_a_fat_tree_again(
    tmp_path: Path, spine: float, oversubscription: float
) -> None:
    machine = imported(tmp_path, fat_tree(spine), host="aws-p5")

    assert isinstance(machine, Machine)
    assert [tier.num_ranks for tier in machine.tiers] == [2, 4, 8]
    assert [tier.bytes_per_ns for tier in machine.tiers] == [450, 50, 50]
    assert machine.tiers[1].latency_ns == 2000
    assert machine.tiers[-1].oversubscription == oversubscription


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (fat_tree().replace("gpu1,nvswitch0,450", "gpu1,nvswitch0,0"), "carries nothing is none"),
        (fat_tree() + "gpu8,alone,50,0\n", "gpu8 cannot be reached from gpu0"),
        ("from,to,gb_per_s\n" + "".join(f"gpu{at},gpu{(at + 1) % 6},50\n" for at in range(6)),
         "make no tiers"),
        ("from,to,gb_per_s\ngpu0,gpu0,50\n", "leads from 'gpu0' to 'gpu0'"),
        ("from,to,gb_per_s\ngpu0,gpu2,50\n", "without gaps, found 2"),
        ("from,to\ngpu0,gpu1\n", "has no column 'gb_per_s'"),
        (NCCL.replace("400000", "0"), "'mlx5_0'.* has no speed"),
        (NCCL[:500], "is not XML"),
        (TOPO.replace("GPU0", "GPU0:"), "names no GPU0 in a column of its own"),
        (TOPO.replace("NV18\t X", "NV18"), "is cut: GPU1 has|joins some GPUs"),
        (ASTRA.replace("25.0", "0"), "dimension 2 .* both must be above 0"),
        (ASTRA.replace("2000.0", "far"), "dimension 2 .* 'far' ns: expected are numbers"),
        (ASTRA.replace("Switch", "Torus"), "expected Ring, FullyConnected or Switch"),
        (FIRST_ASTRA, "expected a number above 0 for each"),
        ("nothing", "is no description that is known"),
    ],
)  # fmt: skip
def test_what_cannot_be_gets_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    source = tmp_path / "source.txt"
    source.write_text(text, encoding="utf-8")

    with pytest.raises(MachineError, match=sentence):
        import_description(source, chip="h100-sxm", host="dgx-h100")


def test_what_a_file_does_not_say_is_to_be_named(tmp_path: Path) -> None:
    source = tmp_path / "topo.txt"
    source.write_text(TOPO, encoding="utf-8")

    with pytest.raises(MachineError, match="which chip it has: name it"):
        import_description(source)


def test_kilometres_of_fibre_are_latency(tmp_path: Path) -> None:
    text = import_description(written(tmp_path, ASTRA), host="dgx-h100").text
    far = written(
        tmp_path, text.replace('latency = "2000 ns"', 'latency = "2 us"\ndistance = "10 km"')
    )

    machine = described(far)

    assert isinstance(machine, Machine)
    assert machine.tiers[1].latency_ns == pytest.approx(2000 + 48_967, rel=1e-4)


def written(folder: Path, text: str) -> Path:
    path = folder / "text.toml"
    path.write_text(text, encoding="utf-8")
    return path


INFRAGRAPH = """devices:
- name: server
  components:
  - {name: xpu, choice: xpu, count: 2}
  - {name: nvsw, choice: switch, count: 1}
  - {name: card, choice: device, count: 2}
  links:
  - {name: nvlink, physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 450}}}
  - {name: pcie, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}}}
  edges:
  - {ep1: {component: xpu}, ep2: {component: 'nvsw[0]'}, link: nvlink, scheme: many2many}
  - {ep1: {component: 'xpu[0:2]'}, ep2: {device: 'card[0:2]', component: 'port[0]'}, link: pcie,
     scheme: one2one}
- name: card
  components: [{name: port, choice: port}]
- name: switch
  components: [{name: asic, choice: switch}]
instances:
- {name: host, device: server, count: 3}
- {name: leaf, device: switch, count: 1}
links:
- name: eth
  physical:
    bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}
    latency: {choice: us, us: 1}
edges:
- ep1: {instance: host, component: 'card.port'}
  ep2: {instance: 'leaf[0]', component: asic}
  link: eth
  scheme: many2many
"""


def test_an_infragraph_becomes_the_tiers_of_its_instances(tmp_path: Path) -> None:
    path = tmp_path / "infra.yaml"
    path.write_text(INFRAGRAPH, encoding="utf-8")

    text = import_description(path, host="dgx-h100").text

    assert [line for line in text.splitlines() if "=" in line][3:] == [
        'name = "scale-up"', 'kind = "scale-up"', "ranks = 2", 'bandwidth = "450 GB/s"',
        'name = "rack"', 'kind = "rack"', "ranks = 6", 'bandwidth = "50 GB/s"',
        'latency = "2000 ns"',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("device: server,", "device: tower,", "a device 'tower', which is not among its devices"),
        ("components: [{name: port, choice: port}]", "components: [{name: card, choice: device}]",
         "which holds itself"),
        ("count: 3}", "count: 0}", "'host' of .* is there 0 times"),
        ("count: 3}", "count: 1000001}", "'host' of .* is there 1000001 times"),
        ("link: eth", "link: rope", "joins by 'rope', which is none of its links"),
        ("gigabytes_per_second: 450", "gigabytes_per_second: 0", "'nvlink' .* has no bandwidth"),
        ("'xpu[0:2]'", "'xpu[0:5]'", "joins 'xpu\\[0:5\\]' of 2 xpu"),
        ("'card.port'", "'card.door'", "joins 'door', which none of its parts is"),
        ("scheme: one2one}", "scheme: ring}", "joins 2 ends with 2 by 'ring'"),
        ("count: 3}", "count: 3}\n- {name: far, device: server}", "cannot be reached from gpu0"),
        ("devices:\n", "devices: 3\nothers:\n", "devices of .* is int, where a list is expected"),
    ],
)  # fmt: skip
def test_an_infragraph_that_cannot_be_is_told_in_a_sentence(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "infra.yaml"
    assert old in INFRAGRAPH
    path.write_text(INFRAGRAPH.replace(old, new), encoding="utf-8")

    with pytest.raises(MachineError, match=words):
        import_description(path, host="dgx-h100")
