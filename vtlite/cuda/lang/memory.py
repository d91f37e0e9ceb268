"""Global and shared memory: vector loads and stores, asynchronous copies, atomics on integers.

The index of a vector access counts vectors: load_u32x4(p, i) reads the 16 bytes at p + 16 i, whatever p points to. It is
a u32, so 16-byte accesses reach 64 GiB. Addresses must be multiples of the vector's size; the emulator checks.
"""

from vtlite.cuda.lang.primitive import primitive
from vtlite.cuda.lang.thread import current
from vtlite.cuda.lang.types import f32, u32, u64


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; ld.global.v4.u32 {$0, $1, $2, $3}, [t]; }", outputs="uuuu", inputs="pu")
def load_u32x4(p, i):
    """16 bytes as four u32, cached as usual: activations (ld.global.v4)."""
    return current().load(p, i, u32, 4, scale=16)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; "
           "ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {$0, $1, $2, $3}, [t]; }", outputs="uuuu", inputs="pu")
def load_weights_u32x4(p, i):
    """16 bytes as four u32 that are read once and never written by this kernel: weights.

    They bypass L1, and L2 fetches 256 bytes at once (ld.global.nc.L1::no_allocate.L2::256B.v4).
    """
    return current().load(p, i, u32, 4, scale=16)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 8, $p; ld.global.v2.u32 {$0, $1}, [t]; }", outputs="uu", inputs="pu")
def load_u32x2(p, i):
    """8 bytes as two u32 (ld.global.v2)."""
    return current().load(p, i, u32, 2, scale=8)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 4, $p; ld.global.u32 $0, [t]; }", outputs="u", inputs="pu")
def load_u32(p, i):
    """4 bytes as a u32 (ld.global.u32)."""
    return current().load(p, i, u32, 1, scale=4)[0]


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; ld.global.v4.f32 {$0, $1, $2, $3}, [t]; }", outputs="ffff", inputs="pu")
def load_f32x4(p, i):
    """16 bytes as four f32 (ld.global.v4.f32)."""
    return current().load(p, i, f32, 4, scale=16)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; st.global.v4.u32 [t], {$a, $b, $c, $d}; }", inputs="puuuuu")
def store_u32x4(p, i, a, b, c, d):
    """Four u32 to 16 bytes (st.global.v4)."""
    current().store(p, i, (u32(a), u32(b), u32(c), u32(d)), u32, scale=16)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 8, $p; st.global.v2.u32 [t], {$a, $b}; }", inputs="puuu")
def store_u32x2(p, i, a, b):
    """Two u32 to 8 bytes (st.global.v2)."""
    current().store(p, i, (u32(a), u32(b)), u32, scale=8)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 4, $p; st.global.u32 [t], $a; }", inputs="puu")
def store_u32(p, i, a):
    """A u32 to 4 bytes (st.global.u32)."""
    current().store(p, i, (u32(a),), u32, scale=4)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; st.global.v4.f32 [t], {$a, $b, $c, $d}; }", inputs="puffff")
def store_f32x4(p, i, a, b, c, d):
    """Four f32 to 16 bytes (st.global.v4.f32)."""
    current().store(p, i, (a, b, c, d), f32, scale=16)


@primitive("{ .reg .u64 t; cvta.to.shared.u64 t, $array; cvt.u32.u64 $0, t; }", outputs="u", inputs="s", pure=True)
def shared_address(array):
    """Byte address of a shared array within shared memory, u32 (CUDA: __cvta_generic_to_shared).

    Asynchronous copies, ldmatrix and mbarriers take it; add byte offsets to it.
    """
    return current().shared_address(array)


@primitive("ld.shared.v4.u32 {$0, $1, $2, $3}, [$address];", outputs="uuuu", inputs="u")
def load_shared_u32x4(address):
    """16 bytes of shared memory as four u32 (ld.shared.v4)."""
    return current().load_shared(address, u32, 4)


@primitive("st.shared.v4.u32 [$address], {$a, $b, $c, $d};", inputs="uuuuu")
def store_shared_u32x4(address, a, b, c, d):
    """Four u32 to 16 bytes of shared memory (st.shared.v4)."""
    current().store_shared(address, (u32(a), u32(b), u32(c), u32(d)), u32)


@primitive("ld.shared.u64 $0, [$address];", outputs="l", inputs="u")
def load_shared_u64(address):
    """8 bytes of shared memory as a u64 (ld.shared.u64)."""
    return current().load_shared(address, u64, 1)[0]


@primitive("st.shared.u64 [$address], $a;", inputs="ul")
def store_shared_u64(address, a):
    """A u64 to 8 bytes of shared memory (st.shared.u64)."""
    current().store_shared(address, (u64(a),), u64)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; cp.async.cg.shared.global.L2::128B [$address], [t], 16; }", inputs="upu")
def cp_async_16(address, p, i):
    """Start copying 16 bytes from p + 16 i to shared memory, past L1 (CUDA: cp.async.cg ... 16).

    It belongs to this thread's next cp_async_commit(). Nothing may be assumed of the target before cp_async_wait(n),
    and other threads see it only after a barrier as well.
    """
    current().cp_async(address, p, i, 16, scale=16)


@primitive("{ .reg .u64 t; .reg .u32 z; .reg .pred q; setp.ne.u32 q, $valid, 0; selp.u32 z, 16, 0, q; "
           "mad.wide.u32 t, $i, 16, $p; cp.async.cg.shared.global.L2::128B [$address], [t], 16, z; }", inputs="upub")
def cp_async_16_or_zero(address, p, i, valid):
    """cp_async_16, which writes zeros and reads nothing where `valid` is false (CUDA: cp.async with src-size 0)."""
    current().cp_async(address, p, i, 16, scale=16, source_size=16 if valid else 0)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 4, $p; cp.async.ca.shared.global [$address], [t], 4; }", inputs="upu")
def cp_async_4(address, p, i):
    """cp_async_16 for 4 bytes at p + 4 i, through L1 (CUDA: cp.async.ca ... 4)."""
    current().cp_async(address, p, i, 4, scale=4)


@primitive("cp.async.commit_group;")
def cp_async_commit():
    """Close the group of copies that this thread has started (CUDA: cp.async.commit_group)."""
    current().cp_async_commit()


@primitive("cp.async.wait_group $groups;", inputs="n")
def cp_async_wait(groups):
    """Wait until at most `groups` (a literal) of this thread's newest groups are unfinished (CUDA: cp.async.wait_group)."""
    current().cp_async_wait(groups)


def _atomic(operation: str, letter: str, name: str, meaning: str, text: str):
    """An atomic on 32-bit or 64-bit integers at element i of a pointer or of a shared array; returns the old value."""
    size = 8 if letter == "l" else 4
    kind = f"{'s' if letter == 'i' else 'u'}{8 * size}" if operation in ("add", "min", "max") else f"b{8 * size}"

    def function(p, i, value):
        return current().atomic(meaning, p, i, value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}; returns the old value (CUDA: atom.{operation}.{kind})."
    return primitive(f"{{ .reg .u64 t; mad.wide.u32 t, $i, {size}, $p; atom.{operation}.{kind} $0, [t], $value; }}",
                     outputs=letter, inputs="pu" + letter)(function)


atomic_add_u32 = _atomic("add", "u", "atomic_add_u32", "add", "p[i] += value, atomically, u32")
atomic_add_i32 = _atomic("add", "i", "atomic_add_i32", "add", "p[i] += value, atomically, i32")
atomic_min_u32 = _atomic("min", "u", "atomic_min_u32", "min", "p[i] = min(p[i], value), atomically, u32")
atomic_max_u32 = _atomic("max", "u", "atomic_max_u32", "max", "p[i] = max(p[i], value), atomically, u32")
atomic_min_i32 = _atomic("min", "i", "atomic_min_i32", "min", "p[i] = min(p[i], value), atomically, i32")
atomic_max_i32 = _atomic("max", "i", "atomic_max_i32", "max", "p[i] = max(p[i], value), atomically, i32")
atomic_or_u32 = _atomic("or", "u", "atomic_or_u32", "or", "p[i] |= value, atomically, u32")
atomic_and_u32 = _atomic("and", "u", "atomic_and_u32", "and", "p[i] &= value, atomically, u32")
atomic_add_u64 = _atomic("add", "l", "atomic_add_u64", "add", "p[i] += value, atomically, u64")
atomic_max_u64 = _atomic("max", "l", "atomic_max_u64", "max", "p[i] = max(p[i], value), atomically, u64")
atomic_exch_u32 = _atomic("exch", "u", "atomic_exch_u32", "exch", "p[i] = value, atomically, u32")


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 4, $p; atom.cas.b32 $0, [t], $compare, $value; }", outputs="u", inputs="puuu")
def atomic_cas_u32(p, i, compare, value):
    """p[i] = value if p[i] == compare, atomically, u32; returns the old value (CUDA: atom.cas.b32)."""
    return current().atomic_cas(p, i, compare, value)


@primitive("atom.shared.add.u32 $0, [$address], $value;", outputs="u", inputs="uu")
def atomic_add_shared_u32(address, value):
    """Add to the u32 at a byte address of shared memory, atomically; returns the old value (CUDA: atom.shared.add.u32).

    Faster than atomic_add_u32 of a shared array, which looks up at run time which memory it was given.
    """
    return current().atomic_shared("add", address, u32, u32(value))


@primitive("atom.shared.add.u64 $0, [$address], $value;", outputs="l", inputs="ul")
def atomic_add_shared_u64(address, value):
    """atomic_add_shared_u32 for a u64 (CUDA: atom.shared.add.u64); chips make it of compare-and-swaps."""
    return current().atomic_shared("add", address, u64, u64(value))
