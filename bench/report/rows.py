"""The rows of bench/results: of each case the variant that the engine launches, with the other variants and its peers."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from vtlite.cuda import linear_wgmma
from vtlite.cuda.attention_decode import TUNED

ELSEWHERE = "h200-peers.json"                                   # peers that a file does not have
HOW = ("what", "variant", "warps", "stages")                    # parts of a case that tell variants apart
MODEL_CASE = re.compile(r"(?P<shape>[^,:]+)(, \d+ in, \d+ out, concurrency (?P<concurrency>\d+))?[^:]*(: (?P<part>.+))?")
TOKENS = "output_tokens_per_second"


@dataclass(eq=False)
class Row:
    """A row of a file; what tells its variant from others stands in `how`, not in `case`."""

    file: str
    meta: dict
    name: str
    case: dict
    how: dict
    values: dict
    others: list["Row"] = field(default_factory=list)           # variants that the engine does not launch
    peers: dict[str, "Row"] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.values.get("ok", True)

    def value(self, metric: str, peer: str | None = None) -> float | None:
        """A figure of the row; with a peer, how many times as fast the row is. None: not measured."""
        if peer is None:
            return self.values.get(metric)
        if peer not in self.peers or "us" not in self.values:
            return None
        theirs = self.peers[peer].values
        return self.values[TOKENS] / theirs[TOKENS] if TOKENS in theirs else theirs["us"] / self.values["us"]


def read(path: Path) -> list[Row]:
    content, rows = json.loads(path.read_text(encoding="utf-8")), []
    for values in content["rows"]:
        name = values.get("name", "kernel")
        if "machine" in content["meta"]:                        # bench/cpu.py
            name = f"cpu.{name}"
        case = values.get("case", {part: values[part] for part in ("kernel", "chip") if part in values})
        if isinstance(case, str):
            model = MODEL_CASE.match(case)
            case = {"case": case} | {part: text for part, text in (model.groupdict() if model else {}).items() if text}
        if case.get("what") == "with convolution":              # more work, not another way
            name, case = f"{name}, with convolution", case | {"what": ""}
        how = {part: case[part] for part in HOW if case.get(part)}
        case = {part: int(value) if part == "concurrency" else value for part, value in case.items()
                if part not in HOW and value != "repeated per query head"}
        rows.append(Row(path.name, content["meta"], name, case, how, values))
    return rows


def engine_rows(rows: list[Row]) -> list[Row]:
    """One row for each case, of the variant that the engine launches, with the others and its peers."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.file, row.name, str(row.case)), []).append(row)
    place = {row: i for i, row in enumerate(rows)}
    peers = [row for row in rows if row.name.startswith("peer.") and row.ok]
    chosen = [next(filter(is_launched, group), group[0]) for group in groups.values()]
    for row, group in zip(chosen, groups.values(), strict=True):
        row.others = [other for other in group if other is not row]
        found = [peer for peer in peers if peer.file in (row.file, ELSEWHERE) and peer.case.items() <= row.case.items()]
        found.sort(key=lambda peer: (peer.file != row.file, place[peer] < place[row], place[peer]), reverse=True)
        row.peers = {peer.name: peer for peer in found}         # of one name the last one stays
    return chosen


def is_launched(row: Row) -> bool:
    """Whether the engine launches this variant, where that need not be the first: as vtlite/cuda chooses on an H200."""
    states = row.case.get("S", 0) * row.case.get("Hv", 0)
    if row.name in ("gdn.decode", "gdn.decode.bf16_state"):
        return row.how.get("what") == ("v_tile 64" if states >= 4 * 132 else "v_tile 32")
    if row.name == "linear.bf16.prefill":
        tile = linear_wgmma.chosen(row.case["T"], row.case["N"], row.case.get("gated", False))
        return row.how.get("what") == f"wgmma {tile['TILE_T']}x{tile['TILE_N']}"
    if row.name == "attention.decode":
        return row.how.get("variant") == list(TUNED[row.case["D"]])
    return row.name == "gdn.prefill" and row.how == {"warps": 8 if states >= 132 else 4, "stages": 2}
