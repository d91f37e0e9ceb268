"""Warp operations: shuffles, votes, integer reductions. All 32 lanes of the warp must call them together.

`value` is an f32, u32 or i32, and the result has its type.
"""

from vtlite.cuda.lang.primitive import primitive
from vtlite.cuda.lang.thread import current
from vtlite.cuda.lang.types import u32

FULL = 0xFFFFFFFF


@primitive("shfl.sync.bfly.b32 $0, $value, $lane_mask, 0x1f, 0xffffffff;", outputs="x", inputs="xu")
def shfl_xor(value, lane_mask):
    """The value of lane (own ^ lane_mask) (CUDA: __shfl_xor_sync)."""
    return current().shfl("xor", FULL, value, lane_mask)


@primitive("shfl.sync.down.b32 $0, $value, $delta, 0x1f, 0xffffffff;", outputs="x", inputs="xu")
def shfl_down(value, delta):
    """The value of lane own + delta, the own value if there is none (CUDA: __shfl_down_sync)."""
    return current().shfl("down", FULL, value, delta)


@primitive("shfl.sync.up.b32 $0, $value, $delta, 0, 0xffffffff;", outputs="x", inputs="xu")
def shfl_up(value, delta):
    """The value of lane own - delta, the own value if there is none (CUDA: __shfl_up_sync)."""
    return current().shfl("up", FULL, value, delta)


@primitive("shfl.sync.idx.b32 $0, $value, $lane, 0x1f, 0xffffffff;", outputs="x", inputs="xu")
def shfl_idx(value, lane):
    """The value of a lane, taken modulo 32 (CUDA: __shfl_sync)."""
    return current().shfl("idx", FULL, value, lane)


@primitive("{ .reg .pred q; setp.ne.u32 q, $predicate, 0; vote.sync.ballot.b32 $0, q, 0xffffffff; }", outputs="u", inputs="b")
def ballot(predicate):
    """u32 whose bit l says whether the predicate holds in lane l (CUDA: __ballot_sync)."""
    return u32(current().vote("ballot", FULL, predicate))


@primitive("{ .reg .pred q; setp.ne.u32 q, $predicate, 0; vote.sync.any.pred q, q, 0xffffffff; selp.u32 $0, 1, 0, q; }",
           outputs="b", inputs="b")
def vote_any(predicate):
    """Whether the predicate holds in any lane (CUDA: __any_sync)."""
    return bool(current().vote("any", FULL, predicate))


@primitive("{ .reg .pred q; setp.ne.u32 q, $predicate, 0; vote.sync.all.pred q, q, 0xffffffff; selp.u32 $0, 1, 0, q; }",
           outputs="b", inputs="b")
def vote_all(predicate):
    """Whether the predicate holds in all lanes (CUDA: __all_sync)."""
    return bool(current().vote("all", FULL, predicate))


@primitive("match.any.sync.b32 $0, $value, 0xffffffff;", outputs="u", inputs="u")
def match_any(value):
    """u32 mask of the lanes whose u32 value equals the own one (CUDA: __match_any_sync)."""
    return u32(current().match_any(FULL, value))


@primitive("redux.sync.add.u32 $0, $value, 0xffffffff;", outputs="u", inputs="u")
def redux_add(value):
    """Sum of the u32 values of all lanes modulo 2^32 (CUDA: __reduce_add_sync)."""
    return current().redux("add", FULL, u32(value))


@primitive("redux.sync.min.u32 $0, $value, 0xffffffff;", outputs="u", inputs="u")
def redux_min(value):
    """Smallest of the u32 values of all lanes (CUDA: __reduce_min_sync)."""
    return current().redux("min", FULL, u32(value))


@primitive("redux.sync.max.u32 $0, $value, 0xffffffff;", outputs="u", inputs="u")
def redux_max(value):
    """Largest of the u32 values of all lanes (CUDA: __reduce_max_sync)."""
    return current().redux("max", FULL, u32(value))


@primitive("redux.sync.or.b32 $0, $value, 0xffffffff;", outputs="u", inputs="u")
def redux_or(value):
    """Bitwise or of the u32 values of all lanes (CUDA: __reduce_or_sync)."""
    return current().redux("or", FULL, u32(value))


@primitive("redux.sync.and.b32 $0, $value, 0xffffffff;", outputs="u", inputs="u")
def redux_and(value):
    """Bitwise and of the u32 values of all lanes (CUDA: __reduce_and_sync)."""
    return current().redux("and", FULL, u32(value))


@primitive("popc.b32 $0, $bits;", outputs="u", inputs="u", pure=True)
def popc(bits):
    """Number of ones in a u32 (CUDA: __popc)."""
    return u32(int(u32(bits)).bit_count())


@primitive("clz.b32 $0, $bits;", outputs="u", inputs="u", pure=True)
def clz(bits):
    """Number of leading zeros of a u32, 32 for 0 (CUDA: __clz)."""
    return u32(32 - int(u32(bits)).bit_length())
